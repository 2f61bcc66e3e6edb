//! What operators are told.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::time::advance;
use tollgate::OnFailure;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::MakeWriter;

use super::rig::{MANY, Mood, Moody, decided_by, layer, ms};

/// The lines of a log.
#[derive(Clone, Default)]
struct Log {
    text: Arc<Mutex<Vec<u8>>>,
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.text.lock().expect("nobody panics here").clone()).expect("text")
    }

    /// How many lines hold a text.
    fn count(&self, text: &str) -> usize {
        self.text().lines().filter(|line| line.contains(text)).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.lock().expect("nobody panics here").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_one_line_however_many_requests_there_are() {
    let log = Log::default();
    let subscriber = || {
        let lines = tracing_subscriber::fmt().with_writer(log.clone()).with_max_level(Level::INFO).with_ansi(false);
        Dispatch::new(lines.finish())
    };
    // While there is only one, a line first met by another test's thread is taken for one nobody reads.
    let (_other, told) = (subscriber(), subscriber());
    let _told = tracing::dispatcher::set_default(&told);
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, MANY).on_failure(OnFailure::Allow).allow_for(ms(5_000));
    for outage in 1..=2 {
        store.becomes(Mood::Fails);
        for _ in 0..100 {
            decided_by(&layer).await;
            advance(ms(100)).await;
        }
        assert_eq!(log.count("the store is not asked for now"), outage, "{}", log.text());
        assert_eq!(log.count("a local one limits now"), outage, "{}", log.text());
        assert_eq!(log.count("the store decides again"), outage - 1, "{}", log.text());
        store.becomes(Mood::Decides);
        advance(ms(500)).await;
        for _ in 0..100 {
            decided_by(&layer).await;
        }
        assert_eq!(log.count("the store decides again"), outage, "{}", log.text());
    }
    assert!(log.count("") <= 2 * 4, "{}", log.text());
    assert!(log.text().contains("the store is away: gone"), "{}", log.text());
    assert!(log.text().contains("failed_for=10.5s"), "{}", log.text());
}
