//! Tar streams of image layers: a reader that trusts nothing and a small writer.
//!
//! Reads v7, ustar, GNU (long names, base-256 numbers) and pax headers; sparse files are refused.
//! Memory is bounded whatever a header claims.

mod header;
mod pax;
mod reader;
mod writer;

pub use header::{Header, Kind, Mtime};
pub use reader::{EntryData, Limits, TarError, TarReader};
pub use writer::TarWriter;
