//! The CNI plugins as one small binary, chosen by the name it is called by.

fn main() {}
