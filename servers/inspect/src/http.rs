//! As much of HTTP/1.1 as the page needs: one request per connection, no longer than [`MOST`] bytes.
//!
//! Requests are hostile: no more than [`MOST`] bytes of one are kept, and an invalid one is refused with a status.
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Most bytes of a request, body included.
pub const MOST: usize = 8 * 1024;
/// Most header fields of a request.
const FIELDS: usize = 48;

/// A complete request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, ...
    pub method: String,
    /// The path, without the question mark and what follows it.
    pub path: String,
    /// What follows the question mark, as fields of a form.
    pub query: String,
    /// The field `Host`.
    pub host: String,
    /// The body.
    pub body: Vec<u8>,
}

/// What the bytes that have arrived are.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The beginning of a request.
    Partial,
    /// A complete request.
    Whole(Request),
    /// No valid request; the status to answer with.
    Bad(Status),
}

/// A status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Status {
    Ok = 200,
    Begun = 202,
    Invalid = 400,
    Forbidden = 403,
    NotFound = 404,
    WrongMethod = 405,
    TooLarge = 413,
    Failed = 500,
    Busy = 503,
}

impl Status {
    /// The status in words, for the status line.
    const fn reason(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::Begun => "Accepted",
            Status::Invalid => "Bad Request",
            Status::Forbidden => "Forbidden",
            Status::NotFound => "Not Found",
            Status::WrongMethod => "Method Not Allowed",
            Status::TooLarge => "Content Too Large",
            Status::Failed => "Internal Server Error",
            Status::Busy => "Service Unavailable",
        }
    }
}

/// Parses a request.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let end = match head.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) if bytes.len() < MOST => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Bad(Status::TooLarge)
        }
        Err(_) => return Parsed::Bad(Status::Invalid),
    };
    let field = |name: &str| {
        let mut all = head.headers.iter();
        let found = all.find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| core::str::from_utf8(field.value).unwrap_or(""))
    };
    if field("transfer-encoding").is_some() {
        return Parsed::Bad(Status::Invalid);
    }
    let length = match field("content-length").map(str::parse::<usize>) {
        None => 0,
        Some(Ok(length)) if length <= MOST - end.min(MOST) => length,
        Some(Ok(_)) => return Parsed::Bad(Status::TooLarge),
        Some(Err(_)) => return Parsed::Bad(Status::Invalid),
    };
    let Some(body) = bytes.get(end..end + length) else {
        return Parsed::Partial;
    };
    let target = head.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Parsed::Whole(Request {
        method: head.method.unwrap_or("").to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        host: field("host").unwrap_or("").to_owned(),
        body: body.to_vec(),
    })
}

/// Whether a request with this field `Host` was meant for this machine: only an address or `localhost` is. Somebody
/// else's name could be made to lead here, and a page of that name could then read the answers (DNS rebinding).
#[must_use]
pub fn is_own(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<core::net::IpAddr>().is_ok()
}

/// The value of a field of a form (`application/x-www-form-urlencoded`), if the form has it and it is UTF-8.
#[must_use]
pub fn field(form: &[u8], name: &str) -> Option<String> {
    let form = core::str::from_utf8(form).ok()?;
    let mut all = form.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = all.find(|(own, _)| *own == name)?;
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A whole response, after which the connection is closed.
#[must_use]
pub fn response(status: Status, kind: &str, body: &str) -> Vec<u8> {
    // The page loads and runs nothing from elsewhere, and no page of another site can show it within itself.
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         connect-src 'self'; frame-ancestors 'none'; form-action 'self'\r\n\r\n",
        status as u16,
        status.reason(),
        body.len()
    );
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// A response with one sentence as its body.
#[must_use]
pub fn sentence(status: Status, sentence: &str) -> Vec<u8> {
    let mut line = sentence.to_string();
    line.push('\n');
    response(status, "text/plain; charset=utf-8", &line)
}
