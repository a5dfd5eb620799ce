//! The attribute `#[interface]`; the crate `interface` says what it makes.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote, ToTokens};
use syn::spanned::Spanned;
use syn::{
    parse_macro_input, Attribute, Error, FnArg, GenericArgument, Ident, ItemTrait, Pat,
    PathArguments, Result, ReturnType, TraitItem, TraitItemFn, Type,
};

/// Makes a service of a trait.
///
/// Each method takes `&self` and returns `Result<T, Error>`. Arguments are numbers and `bool`, at
/// most seven, and at most one `&[u8]` or `&str`, the last. `T` is `()`, a number, a tuple of up
/// to four, or `Bytes`. A method that may have to wait is `async`. A method marked `#[once]` must
/// not be repeated.
#[proc_macro_attribute]
pub fn interface(_: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as ItemTrait);
    generate(&item)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// A method, read.
struct Method<'a> {
    docs: Vec<&'a Attribute>,
    name: &'a Ident,
    /// Arguments in words.
    words: Vec<(&'a Ident, &'a Type)>,
    /// The argument in bytes, and whether it is text.
    bytes: Option<(&'a Ident, &'a Type, bool)>,
    /// `T`.
    returns: &'a Type,
    /// `-> Result<T, Error>`.
    output: &'a ReturnType,
    /// `T` is `Bytes`.
    returns_bytes: bool,
    once: bool,
    waits: bool,
}

fn generate(item: &ItemTrait) -> Result<Tokens> {
    let methods = item
        .items
        .iter()
        .map(Method::read)
        .collect::<Result<Vec<_>>>()?;
    let (docs, vis, name) = (&item.attrs, &item.vis, &item.ident);
    let client = format_ident!("{name}Client");
    let stub = format_ident!("{name}Stub");
    let id = id(name, &methods);
    let takes_bytes = methods.iter().any(|method| method.bytes.is_some());
    let declared = methods.iter().map(Method::declared);
    let asks = methods
        .iter()
        .zip(1u16..)
        .map(|(method, number)| method.asked(number));
    let arms = methods
        .iter()
        .zip(1u16..)
        .map(|(method, number)| method.answered(number));
    let about_client = format!("A client's session with a [`{name}`].");
    let about_stub = format!("The stub of a [`{name}`]: what a server's `make` returns.");
    Ok(quote! {
        #(#docs)*
        #vis trait #name: 'static {
            #(#declared)*
        }

        #[doc = #about_client]
        #[derive(Debug)]
        #vis struct #client(::interface::Session);

        impl #client {
            /// The id of the interface.
            pub const ID: u64 = #id;

            /// Opens a session at a service's door.
            ///
            /// # Errors
            /// Those of [`interface::Session::open`](::interface::Session::open).
            pub fn open(door: &::interface::base::obj::RefAt) -> ::core::result::Result<Self, ::interface::Error> {
                ::interface::Session::open(door, Self::ID).map(Self)
            }

            /// As `open`, with a service of the boot manifest that knows its clients.
            ///
            /// # Errors
            /// Those of [`interface::Session::open_known`](::interface::Session::open_known).
            pub fn open_known(door: &::interface::base::obj::RefAt) -> ::core::result::Result<Self, ::interface::Error> {
                ::interface::Session::open_known(door, Self::ID).map(Self)
            }

            /// As `open_known`, for the client whose own port at init is `who`.
            ///
            /// # Errors
            /// Those of [`interface::Session::open_as`](::interface::Session::open_as).
            pub fn open_as(
                door: &::interface::base::obj::RefAt,
                who: ::interface::base::obj::RefAt,
            ) -> ::core::result::Result<Self, ::interface::Error> {
                ::interface::Session::open_as(door, Self::ID, who).map(Self)
            }

            /// Goes on with a session that was kept elsewhere.
            #[must_use]
            pub fn resume(session: ::interface::Session) -> Self {
                Self(session)
            }

            /// The session.
            #[must_use]
            pub fn session(&self) -> &::interface::Session {
                &self.0
            }

            /// Whether the service has the interface `id` too.
            ///
            /// # Errors
            /// [`interface::Error::Broken`](::interface::Error::Broken) if it is gone.
            pub fn query_interface(&mut self, id: u64) -> ::core::result::Result<bool, ::interface::Error> {
                self.0.query_interface(id)
            }

            #(#asks)*
        }

        #[doc = #about_stub]
        #[derive(Debug)]
        #vis struct #stub<S>(pub S);

        impl<S: #name> ::interface::Service for #stub<S> {
            const BYTES: bool = #takes_bytes;

            fn has(id: u64) -> bool {
                id == #id
            }

            #[inline(always)]
            fn answer(
                self: &::interface::alloc::rc::Rc<Self>,
                request: &::interface::server::Request<'_>,
                reply: &mut ::interface::server::Reply,
            ) -> ::interface::Answer {
                #[allow(unused_imports)]
                use ::interface::server::Kept;
                use ::interface::wire::Plain;
                use ::interface::{Answer, Error};
                match request.method {
                    ::interface::wire::QUERY if request.count > 1 && request.words[1] == #id => {
                        reply.set(Ok(()));
                        Answer::Now
                    }
                    #(#arms)*
                    _ => {
                        reply.set::<()>(Err(Error::Unsupported));
                        Answer::Now
                    }
                }
            }
        }
    })
}

impl<'a> Method<'a> {
    fn read(item: &'a TraitItem) -> Result<Self> {
        let TraitItem::Fn(TraitItemFn {
            attrs,
            sig,
            default,
            ..
        }) = item
        else {
            return Err(Error::new(item.span(), "an interface has methods only"));
        };
        if default.is_some() || !sig.generics.params.is_empty() {
            return Err(Error::new(
                sig.span(),
                "a method has no body and no parameters of types",
            ));
        }
        if sig
            .receiver()
            .is_none_or(|receiver| receiver.to_token_stream().to_string() != "& self")
        {
            return Err(Error::new(sig.span(), "a method takes &self"));
        }
        let (once, docs): (Vec<_>, Vec<_>) = attrs
            .iter()
            .partition(|attribute| attribute.path().is_ident("once"));
        if docs.is_empty() {
            return Err(Error::new(
                sig.span(),
                "say what the method does, its errors, and whether it may be repeated",
            ));
        }
        let (mut words, mut bytes) = (Vec::new(), None);
        for input in sig.inputs.iter().skip(1) {
            let FnArg::Typed(argument) = input else {
                continue;
            };
            let Pat::Ident(pattern) = &*argument.pat else {
                return Err(Error::new(
                    argument.span(),
                    "an argument is a name and a type",
                ));
            };
            if bytes.is_some() {
                return Err(Error::new(argument.span(), "bytes are the last argument"));
            }
            match argument
                .ty
                .to_token_stream()
                .to_string()
                .replace(' ', "")
                .as_str()
            {
                "&[u8]" => bytes = Some((&pattern.ident, &*argument.ty, false)),
                "&str" => bytes = Some((&pattern.ident, &*argument.ty, true)),
                _ => words.push((&pattern.ident, &*argument.ty)),
            }
        }
        let waits = sig.asyncness.is_some();
        let returns = returned(&sig.output)
            .ok_or_else(|| Error::new(sig.span(), "a method returns Result<T, Error>"))?;
        let returns_bytes = returns.to_token_stream().to_string() == "Bytes";
        if words.len() > 7 || waits && bytes.is_some() {
            return Err(Error::new(
                sig.span(),
                "at most seven words, and no argument in bytes if it is async",
            ));
        }
        if !once.is_empty() && waits {
            return Err(Error::new(
                sig.span(),
                "an async method is done once anyway",
            ));
        }
        Ok(Method {
            docs,
            name: &sig.ident,
            words,
            bytes,
            returns,
            output: &sig.output,
            returns_bytes,
            once: !once.is_empty(),
            waits,
        })
    }

    /// The arguments as they are declared.
    fn arguments(&self) -> Vec<Tokens> {
        let words = self.words.iter().map(|(name, ty)| quote!(#name: #ty));
        let bytes = self.bytes.iter().map(|(name, ty, _)| quote!(#name: #ty));
        words.chain(bytes).collect()
    }

    /// The method of the trait that a server implements.
    fn declared(&self) -> Tokens {
        let (docs, name, arguments) = (&self.docs, self.name, self.arguments());
        let room = self.returns_bytes.then(|| quote!(room: usize));
        let output = self.output;
        if self.waits {
            let returns = self
                .returns_bytes
                .then(|| quote!(::interface::alloc::vec::Vec<u8>));
            let returns = returns.unwrap_or_else(|| self.returns.to_token_stream());
            quote! {
                #(#docs)*
                fn #name(&self, #(#arguments,)* #room)
                    -> impl ::core::future::Future<Output = ::core::result::Result<#returns, ::interface::Error>>;
            }
        } else if self.returns_bytes {
            quote! {
                #(#docs)*
                ///
                /// `room` is how many bytes the client has room for.
                fn #name(&self, #(#arguments,)* room: usize)
                    -> ::core::result::Result<impl ::core::ops::Deref<Target = [u8]>, ::interface::Error>;
            }
        } else {
            quote! {
                #(#docs)*
                fn #name(&self, #(#arguments),*) #output;
            }
        }
    }

    /// The method of the proxy.
    fn asked(&self, number: u16) -> Tokens {
        let (docs, name, returns, arguments) =
            (&self.docs, self.name, self.returns, self.arguments());
        let names: Vec<_> = self.words.iter().map(|(name, _)| name).collect();
        let count = names.len();
        if self.returns_bytes {
            let from = self.from();
            // All words are sent if bytes follow them, so that these begin where the server expects them.
            let sent = match self.bytes {
                Some(_) => quote!(::interface::wire::WORDS - 1),
                None => quote!(#count + 1),
            };
            return quote! {
                #(#docs)*
                ///
                /// The bytes go to `into`; the result is how many came.
                pub fn #name(&mut self, #(#arguments,)* into: &mut [u8])
                    -> ::core::result::Result<usize, ::interface::Error>
                {
                    let arguments = [#(::interface::wire::Plain::to_word(#names),)* into.len() as u64];
                    let mut words = [0; #sent];
                    words[..#count + 1].copy_from_slice(&arguments);
                    self.0.ask_with_bytes::<()>(#number, &words, #from, into).map(|((), came)| came)
                }
            };
        }
        let body = if self.bytes.is_some() {
            let from = self.from();
            // All words are sent, so that the bytes begin where the server expects them.
            quote! {
                let mut words = [0; ::interface::wire::WORDS - 1];
                let arguments: [u64; #count] = [#(::interface::wire::Plain::to_word(#names)),*];
                words[..#count].copy_from_slice(&arguments);
                self.0.ask_with_bytes(#number, &words, #from, &mut []).map(|(result, _)| result)
            }
        } else {
            let places = 1..=count;
            quote! {
                #[allow(unused_mut)]
                let mut words = ::interface::wire::NONE;
                #(words[#places].write(::interface::wire::Plain::to_word(#names));)*
                self.0.ask(#number, words, #count)
            }
        };
        quote! {
            #(#docs)*
            #[inline]
            pub fn #name(&mut self, #(#arguments),*) -> ::core::result::Result<#returns, ::interface::Error> {
                #body
            }
        }
    }

    fn from(&self) -> Tokens {
        match &self.bytes {
            Some((name, _, true)) => quote!(#name.as_bytes()),
            Some((name, _, false)) => quote!(#name),
            None => quote!(&[]),
        }
    }

    /// The arm of the stub.
    fn answered(&self, number: u16) -> Tokens {
        let name = self.name;
        let (names, types): (Vec<_>, Vec<_>) = self.words.iter().copied().unzip();
        let places = 1..=names.len();
        let needed = names.len() + usize::from(self.returns_bytes);
        let room_at = names.len() + 1;
        let room = self.returns_bytes.then(|| quote!(room));
        let take_room = self
            .returns_bytes
            .then(|| quote!(let room = request.words[#room_at] as usize;));
        let bytes = self.bytes.iter().map(|(name, _, text)| {
            if *text {
                quote! { let ::core::result::Result::Ok(#name) = ::core::str::from_utf8(request.bytes) else { break 'wrong; }; }
            } else {
                quote! { let #name = request.bytes; }
            }
        });
        let argument = self.bytes.iter().map(|(name, ..)| name);
        let call = quote!(#name(#(#names,)* #(#argument,)* #room));
        let kept = match self.returns_bytes {
            true => quote!(Kept::bytes),
            false => quote!(Kept::new),
        };
        let answer = if self.waits {
            quote! {{
                let this = ::interface::alloc::rc::Rc::clone(self);
                Answer::Later(::interface::alloc::boxed::Box::pin(async move { #kept(this.0.#call.await) }))
            }}
        } else if self.returns_bytes && self.once {
            quote!(::interface::server::keep_bytes(self.0.#call.map(|bytes| bytes.to_vec()), reply))
        } else if self.returns_bytes {
            quote! {
                match self.0.#call {
                    Ok(bytes) => ::interface::server::send_bytes(Ok(&bytes), reply),
                    Err(error) => ::interface::server::send_bytes(Err(error), reply),
                }
            }
        } else if self.once {
            quote! {{
                reply.set(self.0.#call);
                Answer::Once
            }}
        } else {
            quote! {{
                reply.set(self.0.#call);
                Answer::Now
            }}
        };
        quote! {
            #number => {
                'wrong: {
                    if request.count <= #needed {
                        break 'wrong;
                    }
                    #(let Some(#names) = <#types as Plain>::from_word(request.words[#places]) else { break 'wrong; };)*
                    #(#bytes)*
                    #take_room
                    return #answer;
                }
                reply.set::<()>(Err(Error::Invalid));
                Answer::Now
            }
        }
    }
}

/// `T` of `Result<T, Error>`.
fn returned(output: &ReturnType) -> Option<&Type> {
    let ReturnType::Type(_, ty) = output else {
        return None;
    };
    let Type::Path(path) = &**ty else { return None };
    let last = path
        .path
        .segments
        .last()
        .filter(|last| last.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// The id of the interface: a hash (FNV-1a) of its name and of the methods' names and types.
fn id(name: &Ident, methods: &[Method<'_>]) -> u64 {
    let mut text = name.to_string();
    for method in methods {
        let types = method.words.iter().map(|(_, ty)| *ty);
        let types = types.chain(method.bytes.iter().map(|(_, ty, _)| *ty));
        let returns = method.returns;
        let types: Vec<_> = types.collect();
        let name = method.name;
        text += &quote!(; #name(#(#types),*) -> #returns).to_string();
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
