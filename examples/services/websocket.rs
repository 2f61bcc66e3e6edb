//! Messages over web sockets: each user may send 5 a second, in bursts of 10, over all connections; and receives events
//! at no more than 10 a second.
//!
//! `cargo run -p tollgate-services --example websocket` starts the server and a client that sends 12 messages at once,
//! waits, sends one more, and then reads events:
//!
//! ```text
//! message 1: accepted
//! ...
//! message 10: accepted
//! message 11: the limit of policy "messages" is reached: 5 per 1s (token_bucket); retry in 200.0ms
//! message 12: the limit of policy "messages" is reached: 5 per 1s (token_bucket); retry in 199.9ms
//! message 13: accepted
//! 15 events in 1.5s
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::any;
use futures::{SinkExt, StreamExt, stream};
use tokio::net::TcpListener;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message as Sent;
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_bandwidth::Flow;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Limits of what users send, and of what they receive.
#[derive(Clone)]
struct Limits {
    messages: Limiter,
    events: Limiter,
}

async fn upgrade(Path(user): Path<String>, State(limits): State<Limits>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async move |socket| {
        // In a real server, the user is the one who has logged in.
        if let Err(error) = serve(socket, &Key::new("user", user), limits).await {
            eprintln!("the connection has failed: {error}");
        }
    })
}

async fn serve(mut socket: WebSocket, user: &Key, limits: Limits) -> Result<(), Error> {
    let messages = Flow::of(&limits.messages, user).await?;
    while let Some(message) = socket.next().await {
        let Message::Text(text) = message? else { continue };
        if text == "events" {
            return send_events(socket, &Flow::of(&limits.events, user).await?).await;
        }
        // Waits for a call to the store at most; mostly it needs none.
        let reply = match messages.check(1).await {
            Ok(()) => format!("{text}: accepted"),
            Err(error) => format!("{text}: {error}; retry in {:.1?}", error.retry_after().unwrap_or_default()),
        };
        socket.send(Message::text(reply)).await?;
    }
    Ok(())
}

/// Sends 15 events as fast as the user may receive them.
async fn send_events(socket: WebSocket, flow: &Flow) -> Result<(), Error> {
    let events = stream::iter(0..15).map(|number| Ok(Message::text(format!("event {number}"))));
    let mut paced = flow.pace(socket, |_: &Message| 1);
    paced.send_all(&mut events.boxed()).await?;
    paced.close().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limits = Limits {
        messages: Limiter::new(MemoryStore::new(), [Rule::new("messages", Quota::per_second(5).burst(10))]),
        events: Limiter::new(MemoryStore::new(), [Rule::new("events", Quota::per_second(10).burst(1))]),
    };
    let app = Router::new().route("/{user}", any(upgrade)).with_state(limits);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    client(address).await
}

async fn client(address: SocketAddr) -> Result<(), Error> {
    let (mut socket, _) = connect_async(format!("ws://{address}/ada")).await?;
    for number in 1..=12 {
        socket.send(Sent::text(format!("message {number}"))).await?;
    }
    for _ in 1..=12 {
        println!("{}", socket.next().await.ok_or("it is open")??);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    socket.send(Sent::text("message 13")).await?;
    println!("{}", socket.next().await.ok_or("it is open")??);

    socket.send(Sent::text("events")).await?;
    let (start, mut events) = (Instant::now(), 0);
    while let Some(Ok(Sent::Text(_))) = socket.next().await {
        events += 1;
    }
    println!("{events} events in {:.1?}", start.elapsed());
    Ok(())
}
