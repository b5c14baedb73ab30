//! The composition root: reads what was typed and wires the participants together.

fn main() {}
