//! Pure: a validated cluster to Kubernetes objects, one file a kind.
