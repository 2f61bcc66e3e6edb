//! Servers that speak as Redis does, and count otherwise.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::{Error, RedisStore};

use super::stores::{PATIENCE, take};

/// The command that each call begins with, in the order in which they came.
type Asked = Arc<Mutex<Vec<String>>>;

/// A server like Microsoft Garnet: it takes scripts and functions, and packs seven bytes into four.
async fn foreign() -> (String, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let asked = Asked::default();
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        for _ in 0..100 {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(answer_all(stream, Arc::clone(&heard)));
        }
    });
    (format!("redis://{address}"), asked)
}

async fn answer_all(mut stream: TcpStream, asked: Asked) {
    let (mut bytes, mut block) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut block).await {
        bytes.extend_from_slice(&block[..read]);
        while let Some((command, length)) = command(&bytes) {
            let answer: &[u8] = match command[0].as_str() {
                "EVAL" | "FCALL" => b"$6\r\n\x03\xff\0\0\0\x01\r\n",
                _ => b"+OK\r\n",
            };
            asked.lock().expect("nobody panics here").push(command[0].clone());
            bytes.drain(..length);
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}

/// The first command of some bytes, and how many it takes, once it is whole.
fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let line = |from: usize| {
        let end = from + bytes.get(from..)?.windows(2).position(|two| two == b"\r\n")?;
        let number: usize = std::str::from_utf8(&bytes[from + 1..end]).ok()?.parse().ok()?;
        Some((number, end + 2))
    };
    let (count, mut place) = line(0)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, start) = line(place)?;
        words.push(String::from_utf8_lossy(bytes.get(start..start + length)?).into_owned());
        place = start + length + 2;
    }
    (place <= bytes.len()).then_some((words, place))
}

/// Checks that an error says what the server is, and that nothing was asked of it but that.
#[track_caller]
fn assert_refused(error: &Error, asked: &Asked) {
    assert!(format!("{error:#}").contains("this server is no Redis"), "{error:?}");
    let asked = asked.lock().expect("nobody panics here");
    let calls = asked.iter().filter(|command| ["EVAL", "EVALSHA", "FCALL"].contains(&command.as_str())).count();
    assert_eq!(calls, 1, "{asked:?}");
}

#[tokio::test]
async fn a_server_whose_lua_packs_numbers_otherwise_is_refused_and_a_pool_that_leads_to_it_decides_nothing() {
    for settings in [RedisStore::builder, || RedisStore::builder().functions()] {
        let (url, asked) = foreign().await;
        let error = settings().connect(&url).await.expect_err("it is no Redis");
        assert!(error.is_connection(), "{error:?}");
        assert_refused(&error, &asked);
        let (url, asked) = foreign().await;
        let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1)).expect("the URL is one");
        let store = settings().timeout(PATIENCE).from_pool(pool).expect("the settings are valid");
        let error = take(&store, "ada", 1).await.expect_err("it is no Redis");
        assert!(error.is_store(), "{error:?}");
        assert_refused(&error, &asked);
    }
}
