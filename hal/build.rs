//! The kernel among the examples is linked like the real one.

fn main() {
    println!("cargo:rerun-if-changed=../boot/link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo:rustc-link-arg-examples=-T{root}/../boot/link.ld");
        println!("cargo:rustc-link-arg-examples=-zmax-page-size=4096");
        println!("cargo:rustc-link-arg-examples=--build-id=none");
    }
}
