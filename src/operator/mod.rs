//! The shell of the operator: watch, observe, execute one step, report.
