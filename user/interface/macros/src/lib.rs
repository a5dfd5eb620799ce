//! The attribute `#[interface]`; the crate `interface` says what it makes.

mod c;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote, ToTokens};
use syn::spanned::Spanned;
use syn::{
    parse_macro_input, Attribute, Error, Expr, FnArg, GenericArgument, Ident, ItemTrait, Pat,
    PathArguments, Result, ReturnType, TraitItem, TraitItemFn, Type,
};

/// Makes a service from a trait.
///
/// The documentation of each method says its errors (`Errors: ...`; `Errors: none of its own.` if it has only those
/// that every request has) and whether it may be repeated (`May be repeated`, `Must not be repeated`); other methods do
/// not compile.
///
/// Each method takes `&self` and returns `Result<T, Error>`. Arguments are numbers and `bool`, at most seven; then
/// references, each a `&RefAt`, of which the last can be a `&[RefAt]` for any number of them; then at most one `&[u8]`
/// or `&str`. `T` is `()`, a number, `Bytes`, `Ref`, `Refs`, or a tuple of them in that order, with at most four
/// numbers, one `Bytes` and, behind all, one `Refs`. A method that may have to wait is `async`; it gets its references,
/// bytes and text as owned values (`Ref`, `Vec<Ref>`, `Vec<u8>`, `String`), with at most 4,096 bytes unless
/// `#[bytes(MOST)]` says how many: a method that takes more frees them before it waits. A method marked `#[once]` must
/// not be repeated.
///
/// An interface that is `shared`, `#[interface(shared)]`, has no `async` and no `#[once]` methods. Many clients use it
/// at one port, without sessions.
/// sessions.
///
/// An interface that `may_wait`, `#[interface(may_wait)]`, has servers of two kinds: those that answer at once
/// implement the trait `NAME`, and those that have to wait `NAMELater`, in which all methods are `async`. Their clients
/// see no difference.
#[proc_macro_attribute]
pub fn interface(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as ItemTrait);
    let kind = match attribute.to_string().as_str() {
        "" => Ok(Sort::Plain),
        "shared" => Ok(Sort::Shared),
        "may_wait" => Ok(Sort::MayWait),
        _ => Err(Error::new(
            item.span(),
            "an interface is `shared`, or `may_wait`, or nothing is said",
        )),
    };
    kind.and_then(|kind| generate(&item, kind))
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// The sorts of interfaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Plain,
    Shared,
    MayWait,
}

/// A method, parsed.
#[derive(Clone)]
struct Method<'a> {
    docs: Vec<&'a Attribute>,
    name: &'a Ident,
    /// Arguments in words.
    words: Vec<(&'a Ident, &'a Type)>,
    /// Arguments that are references, and whether it takes any number of them.
    refs: Vec<(&'a Ident, &'a Type, bool)>,
    /// The argument in bytes, and whether it is text.
    bytes: Option<(&'a Ident, &'a Type, bool)>,
    /// `T`.
    returns: &'a Type,
    /// `-> Result<T, Error>`.
    output: &'a ReturnType,
    /// The parts of `T` in words.
    values: Vec<&'a Type>,
    /// `T` has `Bytes`.
    returns_bytes: bool,
    /// How many `Ref` there are in `T`.
    returned_refs: usize,
    /// `T` has `Refs`.
    returns_refs: bool,
    once: bool,
    waits: bool,
    /// It waits, and may be repeated: its reply is kept until it has been given.
    again: bool,
    /// Most bytes that a method that waits gets.
    most_bytes: Tokens,
}

fn generate(item: &ItemTrait, sort: Sort) -> Result<Tokens> {
    let shared = sort == Sort::Shared;
    let methods = item
        .items
        .iter()
        .map(|item| Method::read(item, sort))
        .collect::<Result<Vec<_>>>()?;
    if let Some(method) = methods.iter().find(|method| shared && method.alters()) {
        return Err(Error::new(
            method.name.span(),
            "what is asked of a shared interface is answered at once and may be repeated",
        ));
    }
    for method in &methods {
        method.check_documentation()?;
    }
    let (docs, vis, name) = (&item.attrs, &item.vis, &item.ident);
    let client = format_ident!("{name}Client");
    let stub = format_ident!("{name}Stub");
    let id = id(name, &methods);
    let header = c::header(docs, name, id, shared, &methods);
    let shapes = methods.iter().map(Method::shape);
    let described = quote! {
        /// Declarations for C: the id, and a stub for each method.
        pub const C: &'static str = #header;
        /// What each method takes, from method 1 on.
        pub const METHODS: &'static [::interface::wire::Shape] = &[#(#shapes),*];
    };
    let takes_bytes = methods.iter().any(|method| method.bytes.is_some());
    let most_refs = methods
        .iter()
        .map(|method| match method.refs.last() {
            Some((.., true)) => quote!(::interface::wire::MAX_REFS),
            _ => method.refs.len().to_token_stream(),
        })
        .collect::<Vec<_>>();
    let declared = methods.iter().map(|method| {
        let head = method.declared();
        quote!(#head;)
    });
    let asks = methods
        .iter()
        .zip(1u16..)
        .map(|(method, number)| method.asked(number, shared, takes_bytes));
    let arms = methods
        .iter()
        .zip(1u16..)
        .map(|(method, number)| method.answered(number));
    let quick_arms = methods
        .iter()
        .zip(1u16..)
        .filter(|(method, _)| method.is_quick())
        .map(|(method, number)| method.answered_quickly(number));
    let consts = quote! {
        const BYTES: bool = #takes_bytes;
        const REFS: usize = {
            let mut most = 0;
            #(if #most_refs > most { most = #most_refs; })*
            most
        };
    };
    if shared {
        let about_client = format!("A port where a [`{name}`] is asked.");
        let about_stub = format!("The stub of a [`{name}`]: answers the requests at one port.");
        return Ok(quote! {
            #(#docs)*
            #vis trait #name {
                #(#declared)*
            }

            #[doc = #about_client]
            #[derive(Clone, Copy, Debug)]
            #vis struct #client(::interface::Shared);

            impl #client {
                /// The id of the interface.
                pub const ID: u64 = #id;
                #described

                /// Behind this port. The reference has to stay where it is.
                #[must_use]
                pub const fn at(port: ::interface::RefAt) -> Self {
                    Self(::interface::Shared::at(port, Self::ID))
                }

                #(#asks)*
            }

            #[doc = #about_stub]
            #[derive(Debug)]
            #vis struct #stub<S>(pub S);

            impl<S: #name> ::interface::server::SharedService for #stub<S> {
                #consts

                fn answer(
                    &self,
                    request: &::interface::server::Request<'_>,
                    reply: &mut ::interface::server::Reply,
                ) -> ::interface::Answer {
                    use ::interface::wire::Plain;
                    use ::interface::{Answer, Error};
                    const TAG: u64 = ::interface::wire::tag(#id);
                    // A number of 0 is that of a request to a door.
                    const _: () = assert!(TAG != 0);
                    if request.count == 0 || ::interface::wire::number(request.words[0]) != TAG {
                        reply.set::<()>(Err(Error::Unsupported));
                        return Answer::Now;
                    }
                    match request.method {
                        #(#arms)*
                        _ => {
                            reply.set::<()>(Err(Error::Unsupported));
                            Answer::Now
                        }
                    }
                }
            }
        });
    }
    let calls = format_ident!("{name}Calls");
    let about_calls = format!(
        "A [`{name}`] as its callers see it: a [session](`{client}`), or an object of the \
         program ([`interface::Own`](::interface::Own)). A method says its errors and whether it may be repeated at [`{name}`]."
    );
    let called = methods.iter().map(|method| {
        let head = method.called();
        quote!(#head;)
    });
    let called_by_proxy = methods.iter().map(Method::called_by_proxy);
    let called_directly = methods.iter().map(|method| method.called_directly(name));
    let passed_on = methods.iter().map(Method::passed_on);
    let with_kept = |all_wait: bool| {
        let keeps_bytes = methods.iter().any(|method| method.keeps_bytes(all_wait));
        quote! {
            #consts
            const KEEPS_BYTES: bool = #keeps_bytes;
        }
    };
    let later = (sort == Sort::MayWait).then(|| later(item, id, &methods, &with_kept(true)));
    let consts = with_kept(false);
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
            #described

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
            pub const fn resume(session: ::interface::Session) -> Self {
                Self(session)
            }

            /// The session.
            #[must_use]
            pub fn session(&self) -> &::interface::Session {
                &self.0
            }

            #(#asks)*
        }

        #[doc = #about_stub]
        #[derive(Debug)]
        #vis struct #stub<S>(pub S);

        impl<S: #name> ::interface::Service for #stub<S> {
            #consts

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
                    #(#arms)*
                    _ => {
                        reply.set::<()>(Err(Error::Unsupported));
                        Answer::Now
                    }
                }
            }

            #[inline(always)]
            #[allow(unused_variables)]
            fn quick(
                self: &::interface::alloc::rc::Rc<Self>,
                came: &::interface::wire::Came,
                done: &::interface::server::Done,
                waker: &::core::task::Waker,
            ) -> ::interface::server::Quick {
                #[allow(unused_imports)]
                use ::interface::server::{Kept, Quick, ShortReply};
                #[allow(unused_imports)]
                use ::interface::wire::Plain;

                match ::interface::wire::method(came.words[0]) {
                    ::interface::wire::QUERY => match came.has_fewer(2) {
                        true => Quick::Invalid,
                        false => Quick::Query,
                    },
                    #(#quick_arms)*
                    _ => Quick::No,
                }
            }

            fn query(
                self: &::interface::alloc::rc::Rc<Self>,
                id: u64,
            ) -> ::core::option::Option<::interface::alloc::rc::Rc<Self>> {
                (id == #id).then(|| ::interface::alloc::rc::Rc::clone(self))
            }
        }

        #[doc = #about_calls]
        #vis trait #calls: ::interface::Calls {
            #(#called)*
        }

        impl ::interface::Interface for dyn #calls {
            const ID: u64 = #id;

            fn proxy(session: ::interface::Session) -> ::interface::alloc::boxed::Box<Self> {
                ::interface::alloc::boxed::Box::new(#client(session))
            }
        }

        impl ::interface::Calls for #client {
            fn find(&mut self, id: u64) -> ::core::result::Result<::interface::object::Found, ::interface::Error> {
                self.0.query_interface(id).map(::interface::object::Found::Session)
            }
        }

        impl #calls for #client {
            #(#called_by_proxy)*
        }

        impl<S: #name + ::interface::Object> #calls for ::interface::Own<S> {
            #(#called_directly)*
        }

        impl<S: #name> #name for ::interface::alloc::rc::Rc<S> {
            #(#passed_on)*
        }

        #later
    })
}

/// The trait that a server which has to wait implements, and its stub.
fn later(item: &ItemTrait, id: u64, methods: &[Method<'_>], consts: &Tokens) -> Tokens {
    let (vis, name) = (&item.vis, &item.ident);
    let methods: Vec<_> = methods.iter().map(Method::as_later).collect();
    let waiting = format_ident!("{name}Later");
    let stub = format_ident!("{name}LaterStub");
    let about = format!("A [`{name}`] whose server has to wait: all methods are `async`.");
    let about_stub = format!("The stub of a [`{waiting}`].");
    let declared = methods.iter().map(|method| {
        let head = method.declared();
        quote!(#head;)
    });
    let arms = methods
        .iter()
        .zip(1u16..)
        .map(|(method, number)| method.answered(number));
    quote! {
        #[doc = #about]
        #vis trait #waiting: 'static {
            #(#declared)*
        }

        #[doc = #about_stub]
        #[derive(Debug)]
        #vis struct #stub<S>(pub S);

        impl<S: #waiting> ::interface::Service for #stub<S> {
            #consts

            fn has(id: u64) -> bool {
                id == #id
            }

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
                    #(#arms)*
                    _ => {
                        reply.set::<()>(Err(Error::Unsupported));
                        Answer::Now
                    }
                }
            }

            fn query(
                self: &::interface::alloc::rc::Rc<Self>,
                id: u64,
            ) -> ::core::option::Option<::interface::alloc::rc::Rc<Self>> {
                (id == #id).then(|| ::interface::alloc::rc::Rc::clone(self))
            }
        }
    }
}

impl<'a> Method<'a> {
    /// Refuses a method whose documentation does not say its errors, or whether it may be repeated, or whose
    /// documentation contradicts `#[once]`.
    fn check_documentation(&self) -> Result<()> {
        let said = c::lines(self.docs.iter().copied()).join(" ");
        let says = |words: &str| said.contains(words);
        let wrong = if !says("Errors: ") {
            "say its errors in the documentation: `Errors: ` and which, or `Errors: none of its own.`"
        } else if !says("May be repeated") && !says("Must not be repeated") {
            "say in the documentation whether it `May be repeated` or `Must not be repeated`"
        } else if self.once && !says("Must not be repeated") {
            "it is `#[once]`, and its documentation does not say `Must not be repeated`"
        } else if !self.once && !self.waits && says("Must not be repeated") {
            "it `Must not be repeated`, as its documentation says, and is not `#[once]`"
        } else {
            return Ok(());
        };
        Err(Error::new(self.name.span(), wrong))
    }

    fn read(item: &'a TraitItem, sort: Sort) -> Result<Self> {
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
        let is = |name| move |attribute: &&Attribute| attribute.path().is_ident(name);
        let (once, docs): (Vec<_>, Vec<_>) = attrs.iter().partition(is("once"));
        let (most, docs): (Vec<_>, Vec<_>) = docs.into_iter().partition(is("bytes"));
        if docs.is_empty() {
            return Err(Error::new(
                sig.span(),
                "say what the method does, its errors, and whether it may be repeated",
            ));
        }
        let (mut words, mut bytes) = (Vec::new(), None);
        let mut refs: Vec<(&Ident, &Type, bool)> = Vec::new();
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
            let (name, ty) = (&pattern.ident, &*argument.ty);
            let many_came = matches!(refs.last(), Some((.., true)));
            match spelled(ty).as_str() {
                _ if bytes.is_some() => {
                    return Err(Error::new(argument.span(), "bytes are the last argument"));
                }
                "&[u8]" => bytes = Some((name, ty, false)),
                "&str" => bytes = Some((name, ty, true)),
                "&RefAt" if !many_came => refs.push((name, ty, false)),
                "&[RefAt]" if !many_came => refs.push((name, ty, true)),
                _ if !refs.is_empty() => {
                    return Err(Error::new(
                        argument.span(),
                        "numbers come before references, and nothing but bytes behind any number of references",
                    ));
                }
                _ => words.push((name, ty)),
            }
        }
        let waits = sig.asyncness.is_some();
        let returns = returned(&sig.output)
            .ok_or_else(|| Error::new(sig.span(), "a method returns Result<T, Error>"))?;
        let parts = parts(returns);
        let kind = |part: &&Type| match spelled(part).as_str() {
            "Bytes" => 1,
            "Ref" => 2,
            "Refs" => 3,
            _ => 0,
        };
        let count = |wanted| parts.iter().filter(|part| kind(part) == wanted).count();
        if !parts.is_sorted_by_key(kind) || count(1) > 1 || count(3) > 1 {
            return Err(Error::new(
                sig.span(),
                "a result has numbers, then at most one Bytes, then Ref, then at most one Refs",
            ));
        }
        if words.len() > 7 {
            return Err(Error::new(sig.span(), "at most seven words"));
        }
        if !once.is_empty() && waits {
            return Err(Error::new(
                sig.span(),
                "an async method is done once anyway",
            ));
        }
        let most_bytes = match most[..] {
            [] => quote!(::interface::wire::MAX_LATER),
            [most] if (waits || sort == Sort::MayWait) && bytes.is_some() => {
                most.parse_args::<Expr>()?.into_token_stream()
            }
            _ => {
                return Err(Error::new(
                    sig.span(),
                    "only an async method with bytes says how many it takes, once",
                ));
            }
        };
        Ok(Method {
            docs,
            name: &sig.ident,
            words,
            refs,
            bytes,
            returns,
            output: &sig.output,
            returns_bytes: count(1) > 0,
            returned_refs: count(2),
            returns_refs: count(3) > 0,
            values: parts.into_iter().filter(|part| kind(part) == 0).collect(),
            once: !once.is_empty(),
            waits,
            again: false,
            most_bytes,
        })
    }

    /// The same method for a server that has to wait.
    fn as_later(&self) -> Self {
        Method {
            again: !self.once && !self.waits,
            once: false,
            waits: true,
            ..self.clone()
        }
    }

    /// The arguments as they are declared.
    fn arguments(&self) -> Vec<Tokens> {
        let words = self.words.iter().map(|(name, ty)| quote!(#name: #ty));
        let refs = self.refs.iter().map(|(name, _, many)| match many {
            true => quote!(#name: &[::interface::RefAt]),
            false => quote!(#name: &::interface::RefAt),
        });
        let bytes = self.bytes.iter().map(|(name, ty, _)| quote!(#name: #ty));
        words.chain(refs).chain(bytes).collect()
    }

    /// The arguments as a server gets them: a method that may wait gets owned values.
    fn taken(&self) -> Vec<Tokens> {
        if !self.waits {
            return self.arguments();
        }
        let words = self.words.iter().map(|(name, ty)| quote!(#name: #ty));
        let refs = self.refs.iter().map(|(name, _, many)| match many {
            true => quote!(#name: ::interface::alloc::vec::Vec<::interface::Ref>),
            false => quote!(#name: ::interface::Ref),
        });
        let bytes = self.bytes.iter().map(|(name, _, text)| match text {
            true => quote!(#name: ::interface::alloc::string::String),
            false => quote!(#name: ::interface::alloc::vec::Vec<u8>),
        });
        words.chain(refs).chain(bytes).collect()
    }

    /// Whether `T` is more than words, or bytes alone.
    fn returns_whole(&self) -> bool {
        self.returned_refs > 0 || self.returns_refs || self.returns_bytes && !self.values.is_empty()
    }

    /// The result type for a caller, with `bytes` in place of `Bytes`.
    fn result_of_call(&self, bytes: &Tokens) -> Tokens {
        match self.returns_bytes && !self.returns_whole() {
            true => bytes.clone(),
            false => self.result(bytes),
        }
    }

    /// `T`, with `bytes` in place of `Bytes`.
    fn result(&self, bytes: &Tokens) -> Tokens {
        if !self.returns_whole() {
            return self.returns.to_token_stream();
        }
        let values = self.values.iter().map(ToTokens::to_token_stream);
        let bytes = self.returns_bytes.then(|| bytes.clone());
        let refs = (0..self.returned_refs).map(|_| quote!(::interface::Ref));
        let many = self
            .returns_refs
            .then(|| quote!(::interface::alloc::vec::Vec<::interface::Ref>));
        let parts: Vec<_> = values.chain(bytes).chain(refs).chain(many).collect();
        match &parts[..] {
            [part] => part.clone(),
            _ => quote!((#(#parts),*)),
        }
    }

    /// The head of the method of the trait that a server implements.
    fn declared(&self) -> Tokens {
        let (docs, name, arguments) = (&self.docs, self.name, self.taken());
        let room = self.returns_bytes.then(|| quote!(room: usize));
        let about_room = self.returns_bytes.then(|| {
            quote! {
                ///
                /// `room` is how many bytes the client has room for.
            }
        });
        let output = self.output;
        let vector = quote!(::interface::alloc::vec::Vec<u8>);
        if self.waits {
            let returns = self.result_of_call(&vector);
            quote! {
                #(#docs)*
                #about_room
                fn #name(&self, #(#arguments,)* #room)
                    -> impl ::core::future::Future<Output = ::core::result::Result<#returns, ::interface::Error>>
            }
        } else if self.returns_whole() {
            let returns = self.result(&vector);
            quote! {
                #(#docs)*
                #about_room
                fn #name(&self, #(#arguments,)* #room) -> ::core::result::Result<#returns, ::interface::Error>
            }
        } else if self.returns_bytes {
            quote! {
                #(#docs)*
                #about_room
                fn #name(&self, #(#arguments,)* room: usize)
                    -> ::core::result::Result<impl ::core::ops::Deref<Target = [u8]>, ::interface::Error>
            }
        } else {
            quote! {
                #(#docs)*
                fn #name(&self, #(#arguments),*) #output
            }
        }
    }

    /// The names of the arguments, as a server gets them.
    fn argument_names(&self) -> Vec<&Ident> {
        let words = self.words.iter().map(|(name, _)| *name);
        let refs = self.refs.iter().map(|(name, ..)| *name);
        words
            .chain(refs)
            .chain(self.bytes.iter().map(|(name, ..)| *name))
            .collect()
    }

    /// The head of the method as its callers see it.
    fn called(&self) -> Tokens {
        let (docs, name, arguments) = (&self.docs, self.name, self.arguments());
        let into = self.returns_bytes.then(|| quote!(into: &mut [u8]));
        let returns = self.result_of_call(&quote!(usize));
        quote! {
            #(#docs)*
            fn #name(&mut self, #(#arguments,)* #into) -> ::core::result::Result<#returns, ::interface::Error>
        }
    }

    /// The method of the proxy as its callers see it.
    fn called_by_proxy(&self) -> Tokens {
        let (head, name, names) = (self.called(), self.name, self.argument_names());
        let into = self.returns_bytes.then(|| quote!(into));
        quote! { #head { Self::#name(self, #(#names,)* #into) } }
    }

    /// The method of an object of the program.
    fn called_directly(&self, of: &Ident) -> Tokens {
        let (head, name, names) = (self.called(), self.name, self.argument_names());
        let room = self.returns_bytes.then(|| quote!(into.len()));
        let own = self.waits.then(|| {
            let refs = self.refs.iter().map(|(name, _, many)| match many {
                true => quote!(let #name = ::interface::object::copies(#name)?;),
                false => quote!(let #name = #name.copy().map_err(::interface::base::error_of)?;),
            });
            let most = &self.most_bytes;
            let bytes = self.bytes.iter().map(|(name, _, text)| match text {
                true => {
                    quote!(let #name = ::interface::server::keep_text(#name.as_bytes(), #most)?;)
                }
                false => quote!(let #name = ::interface::server::keep_later(#name, #most)?;),
            });
            quote! { #(#refs)* #(#bytes)* }
        });
        let call = quote!(<S as #of>::#name(self.object(), #(#names,)* #room));
        let call = match self.waits {
            true => quote!(::interface::object::wait_for(#call)),
            false => call,
        };
        let body = if !self.returns_bytes {
            call
        } else if !self.returns_whole() {
            quote!(#call.and_then(|bytes| ::interface::object::put_bytes(&bytes, into)))
        } else {
            let pattern = self.pattern();
            quote! {
                let #pattern = #call?;
                let bytes = ::interface::object::put_bytes(&bytes, into)?;
                Ok(#pattern)
            }
        };
        quote! { #head { #own #body } }
    }

    /// The method of a shared pointer (`Rc`) to the service: it calls that of the service.
    fn passed_on(&self) -> Tokens {
        let declared = self.declared();
        let (name, names) = (self.name, self.argument_names());
        let room = self.returns_bytes.then(|| quote!(room));
        quote! { #declared { (**self).#name(#(#names,)* #room) } }
    }

    /// Whether it needs a session.
    fn alters(&self) -> bool {
        self.once || self.waits
    }

    /// Whether bytes of the method's reply are kept, and so are in an image; bytes beside references are not.
    /// `all_wait`: all methods of the server wait.
    fn keeps_bytes(&self, all_wait: bool) -> bool {
        let kept = all_wait || self.alters();
        kept && self.returns_bytes && self.returned_refs == 0 && !self.returns_refs
    }

    /// The method of the proxy. `in_memory`: the server waits for messages in memory, so the proxy sends even a request
    /// in words from memory: the kernel's short way needs both ends to use the same form.
    fn asked(&self, number: u16, shared: bool, in_memory: bool) -> Tokens {
        let (docs, name, arguments) = (&self.docs, self.name, self.arguments());
        let names: Vec<_> = self.words.iter().map(|(name, _)| name).collect();
        let count = names.len();
        let from = self.from();
        let room = self.returns_bytes.then(|| quote!(into.len() as u64));
        let put = count + usize::from(self.returns_bytes);
        // All words are sent if bytes follow them, so that these begin where the server expects them.
        let sent = match self.bytes {
            Some(_) => quote!(::interface::wire::WORDS - 1),
            None => quote!(#put),
        };
        let words = quote! {
            let mut words = [0; #sent];
            let arguments: [u64; #put] = [#(::interface::wire::Plain::to_word(#names),)* #room];
            words[..#put].copy_from_slice(&arguments);
        };
        let into = self.returns_bytes.then(|| quote!(into: &mut [u8]));
        let about_into = self.returns_bytes.then(|| {
            quote! {
                ///
                /// The bytes go to `into`; how many came stands for them in the result.
            }
        });
        let returns = self.result_of_call(&quote!(usize));
        let this = match shared {
            true => quote!(&self),
            false => quote!(&mut self),
        };
        let asked = quote!(::interface::client::Asked);
        if self.returns_whole() || !self.refs.is_empty() {
            let body = self.asked_with_refs(number, &words, &from);
            return quote! {
                #(#docs)*
                #about_into
                pub fn #name(#this, #(#arguments,)* #into)
                    -> ::core::result::Result<#returns, ::interface::Error>
                {
                    #body
                }
            };
        }
        if self.returns_bytes {
            return quote! {
                #(#docs)*
                #about_into
                pub fn #name(#this, #(#arguments,)* #into)
                    -> ::core::result::Result<usize, ::interface::Error>
                {
                    #words
                    #asked::ask_with_bytes::<()>(&self.0, #number, &words, #from, into).map(|((), came)| came)
                }
            };
        }
        let body = if self.bytes.is_some() {
            quote! {
                #words
                #asked::ask_with_bytes(&self.0, #number, &words, #from, &mut []).map(|(result, _)| result)
            }
        } else if in_memory {
            quote! {
                let words: [u64; #count] = [#(::interface::wire::Plain::to_word(#names),)*];
                #asked::ask_with_bytes(&self.0, #number, &words, &[], &mut []).map(|(result, _)| result)
            }
        } else {
            let places = 1..=count;
            quote! {
                #[allow(unused_mut)]
                let mut words = ::interface::wire::NONE;
                #(words[#places].write(::interface::wire::Plain::to_word(#names));)*
                #asked::ask(&self.0, #number, words, #count)
            }
        };
        quote! {
            #(#docs)*
            #[inline]
            pub fn #name(#this, #(#arguments),*) -> ::core::result::Result<#returns, ::interface::Error> {
                #body
            }
        }
    }

    /// What the proxy does if the request or the reply has references.
    fn asked_with_refs(&self, number: u16, words: &Tokens, from: &Tokens) -> Tokens {
        let gather = match self.refs.split_last() {
            Some(((last, _, true), others)) => {
                let others = others.iter().map(|(name, ..)| name);
                quote! {
                    #[allow(unused_mut)]
                    let mut out: ::interface::alloc::vec::Vec<&::interface::RefAt> = [#(#others),*].into();
                    out.extend(#last);
                }
            }
            _ => {
                let names = self.refs.iter().map(|(name, ..)| name);
                quote! { let out: [&::interface::RefAt; _] = [#(#names),*]; }
            }
        };
        let fixed = self.returned_refs;
        let room = match self.returns_refs {
            true => quote!(::interface::wire::MAX_REFS),
            false => fixed.to_token_stream(),
        };
        let into = match self.returns_bytes {
            true => quote!(into),
            false => quote!(&mut []),
        };
        let value_types = &self.values;
        let values: Vec<_> = (0..self.values.len())
            .map(|n| format_ident!("value{n}"))
            .collect();
        let (kind, pattern) = match (&value_types[..], &values[..]) {
            ([ty], [value]) => (quote!(#ty), quote!(#value)),
            _ => (quote!((#(#value_types),*)), quote!((#(#values),*))),
        };
        let bytes = self.returns_bytes.then(|| quote!(bytes));
        let take = (0..fixed).map(|_| quote!(refs.next().ok_or(::interface::Error::Broken)?));
        let rest = self.returns_refs.then(|| quote!(refs.collect()));
        let parts: Vec<_> = values
            .iter()
            .map(ToTokens::to_token_stream)
            .chain(bytes)
            .chain(take)
            .chain(rest)
            .collect();
        let result = match &parts[..] {
            [part] => part.clone(),
            _ => quote!((#(#parts),*)),
        };
        quote! {
            #words
            #gather
            let refs = ::interface::client::refs(#room)?;
            let back: ::interface::alloc::vec::Vec<&::interface::RefAt> = refs.iter().map(|one| &**one).collect();
            #[allow(unused_variables)]
            let (#pattern, bytes, came) =
                ::interface::client::Asked::ask_with_refs::<#kind>(&self.0, #number, &words, (#from, &out), (#into, &back))?;
            #[allow(unused_mut, unused_variables)]
            let mut refs = refs.into_iter().take(came);
            let result = #result;
            Ok(result)
        }
    }

    fn from(&self) -> Tokens {
        match &self.bytes {
            Some((name, _, true)) => quote!(#name.as_bytes()),
            Some((name, _, false)) => quote!(#name),
            None => quote!(&[]),
        }
    }

    /// The arm of the stub for this method.
    fn answered(&self, number: u16) -> Tokens {
        let name = self.name;
        let (names, types): (Vec<_>, Vec<_>) = self.words.iter().copied().unzip();
        let places = 1..=names.len();
        let needed = names.len() + usize::from(self.returns_bytes);
        let room_at = names.len() + 1;
        let room = self.returns_bytes.then(|| quote!(room));
        // A reply that is kept is in images too, with all its bytes.
        let most_room =
            (self.alters() && !self.again).then(|| quote!(.min(::interface::wire::KEPT_BYTES)));
        let take_room = self
            .returns_bytes
            .then(|| quote!(let room = (request.words[#room_at] as usize)#most_room;));
        let most = &self.most_bytes;
        let bytes = self
            .bytes
            .iter()
            .map(|(_, _, text)| match (self.waits, text) {
                (true, true) => quote! { ::interface::server::keep_text(request.bytes, #most) },
                (true, false) => quote! { ::interface::server::keep_later(request.bytes, #most) },
                (false, true) => {
                    quote! { ::core::str::from_utf8(request.bytes).map_err(|_| Error::Invalid) }
                }
                (false, false) => quote! { Ok::<_, Error>(request.bytes) },
            });
        let refs = self
            .refs
            .iter()
            .enumerate()
            .map(|(n, (.., many))| match (self.waits, many) {
                (true, true) => quote! { request.refs.keep_from(#n) },
                (true, false) => quote! { request.refs.keep(#n) },
                (false, true) => quote! { Ok::<_, Error>(request.refs.from(#n)) },
                (false, false) => quote! { request.refs.get(#n).ok_or(Error::Invalid) },
            });
        // A list of any number of references makes no request too long.
        let too_many = match self.refs.split_last() {
            Some(((.., true), others)) => {
                let least = others.len();
                quote!(request.refs.count() < #least)
            }
            _ => {
                let exactly = self.refs.len();
                quote!(request.refs.count() != #exactly)
            }
        };
        let ref_names: Vec<_> = self.refs.iter().map(|(name, ..)| name).collect();
        let byte_names: Vec<_> = self.bytes.iter().map(|(name, ..)| name).collect();
        let (more, taken): (Vec<_>, Vec<_>) = {
            let refs = self.refs.iter().map(|(name, ..)| *name).zip(refs);
            let bytes = self.bytes.iter().map(|(name, ..)| *name).zip(bytes);
            refs.chain(bytes).unzip()
        };
        let lent = match self.waits {
            true => quote!(),
            false => quote!(&),
        };
        let call = quote!(#name(#(#names,)* #(#lent #ref_names,)* #(#byte_names,)* #room));
        let whole = self.whole();
        let answer = if self.waits {
            let kept = match (self.returns_whole(), self.returns_bytes) {
                (true, _) => quote!(Kept::whole(this.0.#call.await.map(#whole))),
                (false, true) => quote!(Kept::bytes(this.0.#call.await)),
                (false, false) => quote!(Kept::new(this.0.#call.await)),
            };
            let kept = match self.again {
                true => quote!(#kept.until_given()),
                false => kept,
            };
            quote! {{
                let this = ::interface::alloc::rc::Rc::clone(self);
                request.later(async move { #kept }, reply)
            }}
        } else if self.returns_whole() && self.once {
            quote!(::interface::server::keep_whole(self.0.#call.map(#whole), reply))
        } else if self.returns_whole() {
            quote!(::interface::server::send_whole(self.0.#call.map(#whole), reply))
        } else if self.returns_bytes && self.once {
            quote! {
                ::interface::server::keep_whole(
                    self.0.#call.map(|bytes| ((), bytes.to_vec(), ::interface::alloc::vec::Vec::new())),
                    reply,
                )
            }
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
        // Checked before the method could be called a second time.
        let done = self.alters().then(|| {
            quote! {
                if request.is_done() {
                    return Answer::Done;
                }
            }
        });
        quote! {
            #number => {
                #done
                let wrong = 'wrong: {
                    if request.count <= #needed || #too_many {
                        break 'wrong Error::Invalid;
                    }
                    #(let Some(#names) = <#types as Plain>::from_word(request.words[#places]) else {
                        break 'wrong Error::Invalid;
                    };)*
                    #(let #more = match #taken {
                        Ok(#more) => #more,
                        Err(error) => break 'wrong error,
                    };)*
                    #take_room
                    return #answer;
                };
                reply.set::<()>(Err(wrong));
                Answer::Now
            }
        }
    }

    /// The method's arguments, for clients without a proxy.
    fn shape(&self) -> Tokens {
        let spelled = |name: &Ident| name.to_string();
        let words = self.words.iter().map(|(name, _)| spelled(name));
        let (refs, room, waits) = (self.refs.len(), self.returns_bytes, self.waits);
        let method = spelled(self.name);
        let bytes = match self.bytes {
            Some((name, ..)) => {
                let name = spelled(name);
                quote!(::core::option::Option::Some(#name))
            }
            None => quote!(::core::option::Option::None),
        };
        quote! {
            ::interface::wire::Shape {
                name: #method,
                words: &[#(#words),*],
                refs: #refs,
                bytes: #bytes,
                room: #room,
                waits: #waits,
            }
        }
    }

    /// Whether request and reply are only words, or the reply is only bytes that are sent from where they lie.
    fn is_quick(&self) -> bool {
        let words_come = self.refs.is_empty() && self.bytes.is_none();
        words_come && !self.returns_whole() && !(self.returns_bytes && self.alters())
    }

    /// The arm of the stub for a request as the proxy makes it.
    fn answered_quickly(&self, number: u16) -> Tokens {
        let name = self.name;
        let (names, types): (Vec<_>, Vec<_>) = self.words.iter().copied().unzip();
        let places = 1..=names.len();
        let room_at = names.len() + 1;
        let words = room_at + usize::from(self.returns_bytes);
        let room = self
            .returns_bytes
            .then(|| quote!(came.words[#room_at] as usize));
        let done = self.alters().then(|| {
            quote!(if done.is(came.words[0]) {
                return Quick::Done;
            })
        });
        let call = quote!(#name(#(#names,)* #room));
        let reply = if self.waits {
            quote! {{
                let this = ::interface::alloc::rc::Rc::clone(self);
                Quick::later(async move { Kept::new(this.0.#call.await) }, done, waker)
            }}
        } else if self.returns_bytes {
            quote! {
                match self.0.#call {
                    Ok(bytes) => Quick::bytes(Ok(&bytes)),
                    Err(error) => Quick::bytes(Err(error)),
                }
            }
        } else if self.once {
            quote!(Quick::Once(ShortReply::of(self.0.#call)))
        } else {
            quote!(Quick::Reply(ShortReply::of(self.0.#call)))
        };
        quote! {
            #number => {
                #done
                if came.has_fewer(#words) {
                    return Quick::Invalid;
                }
                #(let Some(#names) = <#types as Plain>::from_word(came.words[#places]) else {
                    return Quick::Invalid;
                };)*
                #reply
            }
        }
    }

    /// Names for the words and the single references of a result.
    fn value_and_ref_names(&self) -> (Vec<Ident>, Vec<Ident>) {
        let named = |kind: &str, count| (0..count).map(|n| format_ident!("{kind}{n}")).collect();
        (
            named("value", self.values.len()),
            named("reference", self.returned_refs),
        )
    }

    /// A result by the names of its parts.
    fn pattern(&self) -> Tokens {
        let (values, refs) = self.value_and_ref_names();
        let bytes = self.returns_bytes.then(|| quote!(bytes));
        let many = self.returns_refs.then(|| quote!(many));
        let parts: Vec<_> = values
            .iter()
            .map(ToTokens::to_token_stream)
            .chain(bytes)
            .chain(refs.iter().map(ToTokens::to_token_stream))
            .chain(many)
            .collect();
        match &parts[..] {
            [part] => part.clone(),
            _ => quote!((#(#parts),*)),
        }
    }

    /// The code that takes a server's result apart: words, bytes, references.
    fn whole(&self) -> Tokens {
        let (values, refs) = self.value_and_ref_names();
        let pattern = self.pattern();
        let bytes = self.returns_bytes.then(|| quote!(bytes));
        let many = self.returns_refs.then(|| quote!(many));
        let words = match &values[..] {
            [value] => quote!(#value),
            _ => quote!((#(#values),*)),
        };
        let bytes = bytes.unwrap_or_else(|| quote!(::interface::alloc::vec::Vec::new()));
        let all = match &many {
            Some(many) if refs.is_empty() => quote!(#many),
            Some(many) => quote! {{
                let mut all: ::interface::alloc::vec::Vec<::interface::Ref> = [#(#refs),*].into();
                all.extend(#many);
                all
            }},
            None => quote!([#(#refs),*].into()),
        };
        quote!(|#pattern| (#words, #bytes, #all))
    }
}

/// A type as it is written, without spaces.
fn spelled(ty: &Type) -> String {
    ty.to_token_stream().to_string().replace(' ', "")
}

/// The parts of a result type: those of a tuple, or the type itself.
fn parts(ty: &Type) -> Vec<&Type> {
    match ty {
        Type::Tuple(tuple) => tuple.elems.iter().collect(),
        other => vec![other],
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
        let types = types.chain(method.refs.iter().map(|(_, ty, _)| *ty));
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

#[cfg(test)]
mod tests {
    use super::{generate, id, Method, Sort};
    use quote::ToTokens;
    use syn::{parse_quote, File, ImplItem, Item, ItemTrait, TraitItem};

    fn spelled_as(tokens: &impl ToTokens) -> String {
        tokens.to_token_stream().to_string()
    }

    fn id_of(item: &ItemTrait) -> u64 {
        let methods = item
            .items
            .iter()
            .map(|item| Method::read(item, Sort::Plain));
        id(
            &item.ident,
            &methods.collect::<Result<Vec<_>, _>>().unwrap(),
        )
    }

    fn bells() -> ItemTrait {
        parse_quote! {
            /// Bells.
            pub trait Bells {
                /// Rings. Errors: none of its own. Must not be repeated.
                #[once]
                fn ring(&self, which: u32, how: &str) -> Result<(u64, Bytes), Error>;
                /// Waits. Errors: `Invalid`. May be
                /// repeated.
                async fn hear(&self, one: &RefAt, more: &[RefAt]) -> Result<Refs, Error>;
                /// Text. Errors: none of its own. May be repeated.
                fn name(&self) -> Result<Bytes, Error>;
            }
        }
    }

    #[test]
    fn an_id_is_of_names_and_types() {
        let same: ItemTrait = parse_quote! {
            /// Other words.
            trait Bells {
                /// Other words.
                fn ring(&self, bell: u32, text: &str) -> Result<(u64, Bytes), Error>;
                /// Other words.
                fn hear(&self, a: &RefAt, b: &[RefAt]) -> Result<Refs, Error>;
                /// Other words.
                fn name(&self) -> Result<Bytes, Error>;
            }
        };
        assert_eq!(id_of(&bells()), id_of(&same));
        let mut others = vec![bells(), bells(), bells()];
        others[0].ident = parse_quote!(Gongs);
        others[1].items.swap(0, 1);
        others[2].items.pop();
        for other in others {
            assert_ne!(id_of(&bells()), id_of(&other));
        }
    }

    #[test]
    fn a_method_says_its_errors_and_whether_it_may_be_repeated() {
        let refused = |item: ItemTrait| match generate(&item, Sort::Plain) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(refused(bells()), "");
        let why = refused(parse_quote! {
            trait A {
                /// Rings. May be repeated.
                fn ring(&self) -> Result<(), Error>;
            }
        });
        assert!(why.starts_with("say its errors"), "{why}");
        let why = refused(parse_quote! {
            trait A {
                /// Rings. Errors: none of its own.
                fn ring(&self) -> Result<(), Error>;
            }
        });
        assert!(why.contains("whether it `May be repeated`"), "{why}");
        let why = refused(parse_quote! {
            trait A {
                /// Rings. Errors: none of its own. May be repeated.
                #[once]
                fn ring(&self) -> Result<(), Error>;
            }
        });
        assert!(why.contains("it is `#[once]`"), "{why}");
        let why = refused(parse_quote! {
            trait A {
                /// Rings. Errors: none of its own. Must not be repeated.
                fn ring(&self) -> Result<(), Error>;
            }
        });
        assert!(why.contains("is not `#[once]`"), "{why}");
    }

    #[test]
    fn session_and_object_are_called_alike() {
        let made: File = syn::parse2(generate(&bells(), Sort::Plain).unwrap()).unwrap();
        // The trait as its callers see it, implemented by the session's proxy and by the object.
        let (mut seen, mut by) = (Vec::new(), Vec::new());
        for item in &made.items {
            match item {
                Item::Trait(item) if item.ident == "BellsCalls" => {
                    seen.extend(item.items.iter().map(|item| match item {
                        TraitItem::Fn(method) => spelled_as(&method.sig),
                        _ => panic!("no method"),
                    }));
                }
                Item::Impl(item) => {
                    let of = item.trait_.as_ref().map(|(path, _)| spelled_as(path));
                    if of.is_some_and(|of| of.contains("BellsCalls")) {
                        by.push(
                            item.items
                                .iter()
                                .map(|item| match item {
                                    ImplItem::Fn(method) => spelled_as(&method.sig),
                                    _ => panic!("no method"),
                                })
                                .collect::<Vec<_>>(),
                        );
                    }
                }
                _ => {}
            }
        }
        assert_eq!(seen.len(), 3);
        assert!(seen.iter().all(|signature| !signature.contains("async")));
        assert_eq!(by, [&seen[..], &seen[..]]);
    }

    #[test]
    fn what_may_wait_has_two_kinds_of_servers() {
        let mut item = bells();
        // A server that answers at once borrows an argument which a server that waits owns.
        if let TraitItem::Fn(method) = &mut item.items[0] {
            method.attrs.push(parse_quote!(#[bytes(9000)]));
        }
        assert!(generate(&item, Sort::Plain).is_err());
        let made: File = syn::parse2(generate(&item, Sort::MayWait).unwrap()).unwrap();
        let of = |wanted: &str| {
            let found = made.items.iter().find_map(|item| match item {
                Item::Trait(item) if item.ident == wanted => Some(item),
                _ => None,
            });
            found.map(|item| spelled_as(&item.items[0])).unwrap()
        };
        assert!(of("Bells").contains("how : & str"));
        assert!(of("BellsLater").contains("how : :: interface :: alloc :: string :: String"));
        assert!(of("BellsLater").contains("Future"));
        let text = spelled_as(&made);
        assert!(text.contains("9000"));
        // Only the reply of a method that may be repeated need not be kept once it was given.
        assert_eq!(text.matches("until_given").count(), 1);
    }

    #[test]
    fn what_is_no_interface_is_refused() {
        let refused = |item: ItemTrait, sort: Sort, why: &str| {
            let error = generate(&item, sort).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        };
        let mut said = bells();
        if let TraitItem::Fn(method) = &mut said.items[2] {
            method.attrs.clear();
        }
        refused(said, Sort::Plain, "say what the method does");
        refused(bells(), Sort::Shared, "may be repeated");
        let order: ItemTrait = parse_quote! {
            trait Wrong {
                /// Wrong.
                fn wrong(&self, text: &str, number: u64) -> Result<(), Error>;
            }
        };
        refused(order, Sort::Plain, "bytes are the last argument");
        let result: ItemTrait = parse_quote! {
            trait Wrong {
                /// Wrong.
                fn wrong(&self) -> u64;
            }
        };
        refused(result, Sort::Plain, "a method returns Result<T, Error>");
    }
}
