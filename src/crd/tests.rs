//! Tests of the schema, its rules and its defaults.
