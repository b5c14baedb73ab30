//! Decides which node runs a pod: queue, filters, scores, bind.
