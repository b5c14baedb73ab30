//! Chores of the repository: gen, tidy, peers, vm.

fn main() {}
