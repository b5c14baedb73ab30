//! nf_tables in one transaction, without any binary.
