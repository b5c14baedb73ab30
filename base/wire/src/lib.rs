//! The gRPC and ttrpc protocols between participants: our own definitions, generated code, unix transport.
