//! SPDY/3.1 as Kubernetes uses it: streams over an upgraded connection, no flow control.
//!
//! The codec does no I/O: [`Decoder::decode`] takes bytes, [`Encoder::encode`] gives bytes. Header
//! blocks share one zlib context per direction, as the protocol demands.

mod block;
mod connection;
mod frame;

pub use block::{BlockError, Headers, MAX_BLOCK};
pub(crate) use connection::{Connection, Stream, StreamWriter, start};
pub use frame::{Decoder, Encoder, Frame, FrameError};
