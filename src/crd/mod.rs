//! Custom resource types, defaults, CEL rules, printer columns, condition vocabulary.
