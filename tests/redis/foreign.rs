//! Servers that speak as Redis does, and count otherwise.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tollgate::deadpool_redis::redis::{Parser, Value, from_redis_value};
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::{Error, RedisStore};

use super::stores::{PATIENCE, take};

/// The commands that a server was sent.
type Asked = Arc<Mutex<Vec<String>>>;

/// A server like Microsoft Garnet: it takes scripts and functions, and packs seven bytes into four.
fn foreign() -> (String, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let (address, asked) = (listener.local_addr().expect("a listener has an address"), Asked::default());
    let heard = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = Arc::clone(&heard);
            thread::spawn(move || answer_all(stream, &heard));
        }
    });
    (format!("redis://{address}"), asked)
}

fn answer_all(mut stream: TcpStream, asked: &Asked) {
    let mut parser = Parser::new();
    while let Ok(Value::Array(words)) = parser.parse_value(&mut stream) {
        let command: String = from_redis_value(words[0].clone()).expect("a command is text");
        let is_script = command.starts_with("EVAL") || command == "FCALL";
        asked.lock().expect("nobody panics here").push(command);
        let answer: &[u8] = if is_script { b"$6\r\n\x03\xff\0\0\0\x01\r\n" } else { b"+OK\r\n" };
        if stream.write_all(answer).is_err() {
            return;
        }
    }
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
        let (url, asked) = foreign();
        let error = settings().connect(&url).await.expect_err("it is no Redis");
        assert!(error.is_connection(), "{error:?}");
        assert_refused(&error, &asked);
        let (url, asked) = foreign();
        let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1)).expect("the URL is one");
        let store = settings().timeout(PATIENCE).from_pool(pool).expect("the settings are valid");
        let error = take(&store, "ada", 1).await.expect_err("it is no Redis");
        assert!(error.is_store(), "{error:?}");
        assert_refused(&error, &asked);
    }
}
