//! A minimal HTTP/1.1 client: one request per connection, with the response whole or line by line.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::node::PATIENCE;

/// A response without its body.
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Keys are in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

/// A whole response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }
}

fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (Head, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text += "host: localhost\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line of the head");
        line.trim_end().to_owned()
    };
    let first = line();
    let status = first.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {first:?}"));
    let mut headers = BTreeMap::new();
    loop {
        let line = line();
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    (Head { status, headers }, reader)
}

/// Sends a request and returns the whole response.
pub(crate) fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let (head, mut reader) = send(address, method, path, headers, body);
    let mut text = String::new();
    if head.headers.contains_key("transfer-encoding") {
        while let Some(chunk) = chunk(&mut reader) {
            text += &chunk;
        }
    } else {
        reader.read_to_string(&mut text).expect("a body");
    }
    Answer {
        status: head.status,
        headers: head.headers,
        body: text,
    }
}

pub(crate) fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path, &[], "")
}

pub(crate) fn post(address: &str, path: &str, body: &str) -> Answer {
    ask(address, "POST", path, &[], body)
}

/// Sends a request and returns the first lines of the streamed response.
pub(crate) fn lines(address: &str, path: &str, body: &str, count: usize) -> (Head, Vec<String>) {
    let (head, mut reader) = send(address, "POST", path, &[], body);
    let mut text = String::new();
    while text.lines().count() < count || !text.ends_with('\n') {
        let Some(chunk) = chunk(&mut reader) else {
            break;
        };
        text += &chunk;
    }
    (head, text.lines().map(str::to_owned).collect())
}

fn chunk(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut size = String::new();
    reader.read_line(&mut size).expect("the size of a chunk");
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk).expect("a chunk");
    chunk.truncate(size);
    (size > 0).then(|| String::from_utf8(chunk).expect("text"))
}
