//! A language model behind four limits in one decision: requests and tokens per minute, tokens per day, and two answers
//! at once for each client.
//!
//! `cargo run -p tollgate-services --example llm` starts the server and a client; pass the URL of a Redis server to
//! count there. A request reserves the tokens of its prompt and of the longest answer that it allows. When the answer has
//! ended, or its client has left, what was not used is refunded:
//!
//! ```text
//! three at once, which reserve 300 tokens each:
//!   HTTP/1.1 200 OK, 40 tokens
//!   HTTP/1.1 200 OK, 40 tokens
//!   HTTP/1.1 429 Too Many Requests, 0 tokens
//! used: 280 tokens today, 0 answers at once
//! one that is left after five tokens:
//! used: 580 tokens today, 1 answers at once
//! used: 385 tokens today, 0 answers at once
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{get_service, post};
use axum::{Extension, Router};
use futures::stream;
use http::request::Parts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::policy::Calendar;
use tollgate::{MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, RedisStore, key};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The most tokens that an answer has unless the client says less.
const MAX_TOKENS: u64 = 500;

fn layer(redis: Option<&RedisStore>) -> Result<RateLimitLayer, Error> {
    let layer = match redis {
        Some(store) => RateLimitLayer::composite(store.clone()),
        None => RateLimitLayer::composite(MemoryStore::new()),
    };
    let per_day = Quota::try_calendar_window(1_000_000_000, Calendar::daily("UTC")?)?;
    let policies = [
        Policy::new("requests", Quota::per_minute(60)),
        Policy::new("tokens", Quota::per_minute(10_000)).cost_by(reserved).metered(),
        Policy::new("tokens-a-day", per_day).cost_by(reserved).metered(),
        Policy::new("answers", Quota::concurrency(2)),
    ];
    Ok(layer.policies(policies.map(|policy| policy.key(key::bearer()))))
}

/// The tokens of the prompt, about four bytes each.
fn prompt(parts: &Parts) -> u64 {
    let length = parts.headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    u64::div_ceil(length.unwrap_or(4_096), 4)
}

/// The tokens of the answer at most.
fn most(parts: &Parts) -> u64 {
    let most = parts.headers.get("x-max-tokens").and_then(|most| most.to_str().ok()?.parse().ok());
    most.unwrap_or(MAX_TOKENS).clamp(1, MAX_TOKENS)
}

/// The tokens that a request reserves.
fn reserved(parts: &Parts) -> u64 {
    prompt(parts) + most(parts)
}

/// The tokens of one answer. The rest of what was reserved is refunded when it is dropped, with the body.
struct Meter {
    limits: RateLimitHandle,
    reserved: u64,
    used: u64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Charged and refunded are all policies that are metered.
        self.limits.refund(self.reserved.saturating_sub(self.used));
        self.limits.charge(self.used.saturating_sub(self.reserved));
    }
}

/// Streams an answer of 40 tokens, or as many as the client wants.
async fn answer(Extension(limits): Extension<RateLimitHandle>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let (words, meter) = (most(&parts).min(40), Meter { limits, reserved: reserved(&parts), used: prompt(&parts) });
    let tokens = stream::unfold((0, meter), move |(number, mut meter)| async move {
        if number == words {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        meter.used += 1;
        let token = Bytes::from(format!("data: token {number}\n\n"));
        Some((Ok::<_, Error>(token), (number + 1, meter)))
    });
    Response::builder()
        .header(http::header::CONTENT_TYPE, "text/event-stream")
        .body(Body::from_stream(tokens))
        .expect("the header is valid")
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let redis = match std::env::args().nth(1) {
        Some(url) => Some(RedisStore::builder().prefix("example-llm").connect(&url).await?),
        None => None,
    };
    let layer = layer(redis.as_ref())?;
    let app = Router::new().route("/answer", post(answer).layer(layer.clone())).route(
        "/limits",
        get_service(layer.clone().live().status_service_for(|parts| parts.headers.contains_key("authorization"))),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    client(address).await
}

async fn client(address: SocketAddr) -> Result<(), Error> {
    println!("three at once, which reserve 300 tokens each:");
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(ask(address).await?);
    }
    for mut answer in answers {
        let (mut text, mut buffer) = (String::new(), [0; 4_096]);
        while let read @ 1.. = answer.read(&mut buffer).await? {
            text += &String::from_utf8_lossy(&buffer[..read]);
        }
        println!("  {}, {} tokens", text.lines().next().unwrap_or_default(), text.matches("data: ").count());
    }
    println!("used: {}", used(address).await?);
    println!("one that is left after five tokens:");
    let mut answer = ask(address).await?;
    while !String::from_utf8_lossy(&read_some(&mut answer).await?).contains("token 4") {}
    println!("used: {}", used(address).await?);
    drop(answer);
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("used: {}", used(address).await?);
    Ok(())
}

/// Sends a prompt of 400 bytes, which are 100 tokens, and asks for 200 tokens at most.
async fn ask(address: SocketAddr) -> Result<TcpStream, Error> {
    let mut stream = TcpStream::connect(address).await?;
    let head = "POST /answer HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer ada\r\n\
                x-max-tokens: 200\r\ncontent-length: 400\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&[b'?'; 400]).await?;
    Ok(stream)
}

async fn read_some(stream: &mut TcpStream) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; 4_096];
    let read = stream.read(&mut buffer).await?;
    buffer.truncate(read);
    Ok(buffer)
}

/// What the status route says is used.
async fn used(address: SocketAddr) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address).await?;
    let head = "GET /limits HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer ada\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let used = |policy| {
        let members = text.split(&format!("\"{policy}\":{{")).nth(1)?;
        members.split("\"used\":").nth(1)?.split(',').next()
    };
    let [tokens, answers] = ["tokens-a-day", "answers"].map(|policy| used(policy).unwrap_or("?"));
    Ok(format!("{tokens} tokens today, {answers} answers at once"))
}
