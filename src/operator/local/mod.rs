//! The operator's platform on one machine, without Kubernetes: a PVC is a directory, a set is
//! the record that a process is wanted, a pod is a child process, the node is this machine. The
//! plan and the loop are those of Kubernetes; nothing is decided here.

pub mod console;
pub mod demo;
pub mod home;
pub mod platform;
pub mod pods;
pub mod run;
pub mod shown;
pub mod supervisor;
pub mod writer;
