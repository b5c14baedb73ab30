//! Test-only peers and harnesses shared by the tree's tests.
