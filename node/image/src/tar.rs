//! Tar streams of image layers: a reader that trusts nothing and a small writer.
//!
//! Reads v7, ustar, GNU (long names, base-256 numbers) and pax headers; sparse files are refused.
//! Memory is bounded whatever a header claims.
//!
//! Formats: <https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html> and
//! <https://www.gnu.org/software/tar/manual/html_node/Standard.html>.

mod header;
mod pax;
mod reader;
mod writer;

pub use header::{Header, Kind, Mtime};
pub use reader::{EntryData, Limits, TarError, TarReader};
pub use writer::TarWriter;
