//! Golden renderings.
