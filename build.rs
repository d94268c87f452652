//! Lessons and scenarios are embedded in the binary: a file that is new among them must build it again.

fn main() {
    for folder in ["lessons", "scenarios"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
