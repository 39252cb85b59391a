//! Golden texts of whole situations, each compared with its file.

mod faults;
mod growth;
mod hibernate;
mod nodes;
mod objects;
mod slots;
mod spread;
mod tls;
mod version;
