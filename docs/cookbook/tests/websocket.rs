include!("rig.rs");

use std::net::SocketAddr;

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::{Error, Message};
use tollgate::test_util::ManualClock;

/// Serves a user, and returns the URL.
async fn start(store: &tollgate::MemoryStore, user: &str) -> String {
    let app = app(store.clone()).layer(Extension(User(user.to_owned())));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("ws://{}/socket", listener.local_addr().expect("an address"));
    let server = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>());
    tokio::spawn(async move { server.await });
    url
}

async fn connect(
    url: &str,
) -> Result<impl SinkExt<Message, Error = Error> + StreamExt<Item = Result<Message, Error>>, u16> {
    match tokio_tungstenite::connect_async(url).await {
        Ok((socket, _)) => Ok(Box::pin(socket)),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let store = memory(&ManualClock::new());
    let (ada, bob) = (start(&store, "ada").await, start(&store, "bob").await);
    let (Ok(mut first), Ok(mut second), Ok(third)) = (connect(&ada).await, connect(&ada).await, connect(&bob).await)
    else {
        panic!("three sockets are allowed")
    };

    // Ten messages over both sockets of a user.
    for number in 1..=12 {
        let socket = if number % 2 == 0 { &mut first } else { &mut second };
        socket.send(Message::text("hello")).await.expect("an open socket");
        let reply = socket.next().await.expect("an open socket").expect("a message");
        assert_eq!(reply, Message::text(if number <= 10 { "hello" } else { "slow down" }));
    }

    // A fourth socket has to wait for the end of another, and another user has messages of its own.
    assert_eq!(connect(&bob).await.err(), Some(429));
    drop(third);
    for attempt in 1.. {
        match connect(&bob).await {
            Ok(mut socket) => {
                socket.send(Message::text("hello")).await.expect("an open socket");
                assert_eq!(socket.next().await.expect("an open socket").expect("a message"), Message::text("hello"));
                break;
            }
            Err(status) => assert!(attempt < 50, "{status}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
