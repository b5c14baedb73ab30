//! Side-by-side benchmarks against upstream peers.
