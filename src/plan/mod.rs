//! Pure: `Observed` to `Plan`; a file per situation.
