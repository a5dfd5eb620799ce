//! The files of the images on which an incremental one is based.

use crate::desk::Wanted;
use crate::machine;
use crate::Sentence;
use abi::PAGE_SIZE;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use checkpoint_image::chain::{self, Bytes, Chain, Image, MAX_IMAGES};
use checkpoint_image::meta::{Meta, Parent, MAX_PATH};
use checkpoint_image::tool::plain;
use core::cell::RefCell;
use rt::fs::Flags;
use rt::heap::Hold;

/// The file of an image.
pub(crate) struct File(pub(crate) rt::fs::File);

impl Bytes for File {
    fn size(&self) -> u64 {
        self.0.opened().size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        chain::all_came(self.0.read_full(offset, into), into.len())
    }
}

/// The parent of an image, with its own parents.
pub(crate) struct Parents {
    pub(crate) chain: Chain<File>,
    /// The image's description of its parent.
    pub(crate) name: Parent,
    page: Vec<u8>,
}

impl Parents {
    /// Whether the page of a process in the parent is equal to this one.
    pub(crate) fn has(&mut self, process: u32, offset: u64, page: &[u8]) -> Result<bool, Sentence> {
        let found = self.chain.page(process, offset, &mut self.page);
        let found = found.map_err(|why| format!("{}: {why}", plain(&self.name.path)))?;
        Ok(found && self.page == page)
    }
}

/// Opens the image at `parent` for one that is to be written at `path`, with its own parents.
pub(crate) fn of_new(parent: &str, path: &str, wanted: &Wanted) -> Result<Parents, Sentence> {
    let image = open(parent, wanted)?;
    // A symbolic link may lead to another image when the parent is needed.
    let found = rt::fs::path_of(image.bytes().0.ino()).ok();
    let found = found.filter(|path| path.len() <= MAX_PATH);
    let name = Parent {
        path: found.unwrap_or_else(|| parent.to_string()),
        identity: image.identity(),
    };
    let chain = Chain::new(image, &[]).map_err(|why| format!("{parent}: {why}"))?;
    let chain = complete(chain, &name.path, wanted)?;
    if !chain.may_grow() {
        return Err(format!(
            "{parent} is the last of {MAX_IMAGES} images in a row: save a whole one"
        ));
    }
    // Replacing a parent would destroy the pages that are left to it.
    if let Ok(attributes) = rt::fs::stat(path, true) {
        let is_it = |image: &Image<File>| image.bytes().0.opened().ino == attributes.ino;
        if chain.images().any(is_it) {
            return Err(format!(
                "{path} cannot be replaced by an image that needs it"
            ));
        }
    }
    Ok(parents(chain, name))
}

/// Opens the parent of the image at `path`, which has this description, with its own parents; `None` if no page is left
/// to it.
pub(crate) fn of(meta: &Meta, path: &str, wanted: &Wanted) -> Result<Option<Parents>, Sentence> {
    let Some(name) = meta.parent.as_ref().filter(|_| !meta.same.is_empty()) else {
        return Ok(None);
    };
    let (image, place) = find(name, path, wanted)?;
    // Memory for the check that the parent has them.
    rt::heap::want((meta.same.len() * size_of::<chain::Stretch>()) as u64)
        .map_err(|error| error.text().to_string())?;
    let chain = Chain::new(image, &meta.same);
    let chain = chain.map_err(|why| format!("{}: {why}", plain(&place)))?;
    let chain = complete(chain, &place, wanted)?;
    Ok(Some(parents(chain, name.clone())))
}

fn parents(chain: Chain<File>, name: Parent) -> Parents {
    Parents {
        chain,
        name,
        page: vec![0; PAGE_SIZE as usize],
    }
}

/// Adds the missing parents; the last image of the chain is at `path`.
fn complete(mut chain: Chain<File>, path: &str, wanted: &Wanted) -> Result<Chain<File>, Sentence> {
    let mut path = path.to_string();
    while let Some(name) = chain.wanted().cloned() {
        wanted.check()?;
        let (image, place) = find(&name, &path, wanted)?;
        let added = chain.add(image);
        added.map_err(|why| format!("{}: {why}", plain(&place)))?;
        path = place;
    }
    Ok(chain)
}

/// Finds the parent of the image at `child`, and returns it and its path.
fn find(name: &Parent, child: &str, wanted: &Wanted) -> Result<(Image<File>, String), Sentence> {
    let [beside, where_it_was] = chain::places(child, &name.path);
    // The path is a text of the image.
    let mut why = format!("{} is not there", plain(&where_it_was));
    for place in [beside, where_it_was] {
        match open(&place, wanted) {
            Ok(image) if image.identity() == name.identity => return Ok((image, place)),
            Ok(_) => why = format!("{} is another image", plain(&place)),
            Err(other) if rt::fs::stat(&place, true).is_ok() => why = plain(&other),
            Err(_) => {}
        }
    }
    Err(format!(
        "the image that {} is based on is missing: {why}",
        plain(child)
    ))
}

fn open(path: &str, wanted: &Wanted) -> Result<Image<File>, Sentence> {
    let file = rt::fs::File::open(path, Flags::default(), 0)
        .map_err(|error| format!("{path}: {}", error.text()))?;
    // Memory that is needed only while the image is read.
    let held = RefCell::new(Hold::default());
    let room = |bytes| held.borrow_mut().add(bytes).is_ok();
    let image = Image::open(File(file), machine::features(), room);
    let image = image.map_err(|why| format!("{path}: {why}"))?;
    held.take().clear();
    wanted.hold(image.memory())?;
    Ok(image)
}
