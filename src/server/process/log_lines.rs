//! The log as JSON, one object per line, with the keys that collectors of etcd's log expect:
//! `level`, `ts`, `caller`, `msg`, and the event's own fields.
//!
//! Never chooses what is logged.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes an event as a line of JSON.
pub(in crate::server) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let time = jiff::Timestamp::try_from(
            std::time::UNIX_EPOCH + crate::server::process::clock::since_1970(),
        )
        .unwrap_or_default();
        write!(
            writer,
            "{{\"level\":\"{}\",\"ts\":\"{time:.6}\",\"caller\":{},\"msg\":{}",
            level(*metadata.level()),
            Value::from(caller(metadata.file(), metadata.line())),
            Value::from(fields.message),
        )?;
        for (name, value) in fields.others {
            write!(writer, ",{}:{value}", Value::from(name))?;
        }
        writer.write_str("}\n")
    }
}

/// The line that says how many are missing before the next one, and why.
pub(super) fn left_out(number: u64, why: &str, json: bool) -> String {
    let text = format!("{number} lines of the log were left out: {why}");
    match json {
        true => format!("{{\"level\":\"warn\",\"msg\":\"{text}\"}}\n"),
        false => format!("WARN {text}\n"),
    }
}

/// zap's names of levels.
fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG | Level::TRACE => "debug",
    }
}

/// The last folder and the file, as in zap.
fn caller(file: Option<&str>, line: Option<u32>) -> String {
    let file = file.unwrap_or_default();
    let cut = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    format!("{}:{}", &file[cut..], line.unwrap_or_default())
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        // A field name must not occur twice in one object.
        let name = match field.name() {
            name @ ("level" | "ts" | "caller" | "msg") => format!("{name}_"),
            name => name.trim_start_matches("r#").to_owned(),
        };
        self.others.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a String cannot fail.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.put(field, format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.put(field, value.into());
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::{Json, caller};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("lines").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_line_is_one_object_with_zaps_keys() {
        let lines = Lines::default();
        let kept = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || kept.clone())
            .event_format(Json);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(number = 7, good = true, msg = "own", what = %"a \"b\"\n", "logged {}", 1);
        });
        let bytes = lines.0.lock().expect("lines").clone();
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("{\"level\":\"warn\",\"ts\":\"2"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("json");
        assert_eq!(json["msg"], "logged 1");
        assert_eq!(json["number"], 7);
        assert_eq!(json["good"], true);
        assert_eq!(json["what"], "a \"b\"\n");
        assert_eq!(json["msg_"], "own");
        let caller = json["caller"].as_str().expect("caller");
        assert!(caller.starts_with("process/log_lines.rs:"), "{caller}");
    }

    #[test]
    fn log_callers_keep_one_folder() {
        assert_eq!(caller(Some("src/a/b.rs"), Some(3)), "a/b.rs:3");
        assert_eq!(caller(Some("b.rs"), None), "b.rs:0");
    }
}
