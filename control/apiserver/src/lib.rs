//! The Kubernetes API server: HTTP requests to authenticated, admitted, validated transactions.
