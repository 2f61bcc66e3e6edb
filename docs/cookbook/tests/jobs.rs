use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, sleep};
use tollgate::MemoryStore;
use tollgate::test_util::ManualClock;

/// Stands in for a queue whose jobs may be put back for a time. It ends after 30 s without a job.
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<VecDeque<(Instant, Job)>>>);

struct Job {
    tenant: &'static str,
    takes: Duration,
    log: Log,
}

/// The jobs that run, the most that ever did, and when each began, by tenant.
type Log = Arc<Mutex<BTreeMap<&'static str, (usize, usize, Vec<Instant>)>>>;

impl Queue {
    async fn take(&self) -> Option<Job> {
        for _ in 0..3_000 {
            let now = Instant::now();
            let mut jobs = self.0.lock().expect("not poisoned");
            if let Some(first) = jobs.iter().position(|(visible, _)| *visible <= now) {
                return jobs.remove(first).map(|(_, job)| job);
            }
            drop(jobs);
            sleep(Duration::from_millis(10)).await;
        }
        None
    }

    fn put_back(&self, job: Job, wait: Option<Duration>) {
        let visible = Instant::now() + wait.unwrap_or_default();
        self.0.lock().expect("not poisoned").push_back((visible, job));
    }
}

impl Job {
    async fn run(self) {
        {
            let mut log = self.log.lock().expect("not poisoned");
            let (running, most, began) = log.entry(self.tenant).or_default();
            *running += 1;
            *most = (*most).max(*running);
            began.push(Instant::now());
        }
        sleep(self.takes).await;
        self.log.lock().expect("not poisoned").get_mut(self.tenant).expect("it began").0 -= 1;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let clock = ManualClock::paused();
    let tenants = tenants(MemoryStore::builder().clock(clock).build());
    let (queue, log, start) = (Queue::default(), Log::default(), Instant::now());
    for (tenant, jobs, takes) in [("slow", 6, 5_000), ("quick", 13, 1), ("other", 1, 1)] {
        for _ in 0..jobs {
            queue.put_back(Job { tenant, takes: Duration::from_millis(takes), log: log.clone() }, None);
        }
    }
    work(&tenants, &queue).await.expect("decisions");

    // Two slow jobs at once; ten quick ones at once, and then one a second; nobody waits for them long.
    let log = log.lock().expect("not poisoned");
    for (tenant, earliest) in
        [("slow", vec![0, 0, 5, 5, 10, 10]), ("quick", vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]), ("other", vec![0])]
    {
        let (running, most, began) = &log[tenant];
        assert_eq!((*running, began.len()), (0, earliest.len()), "{tenant}");
        assert!(*most <= 2, "{tenant}: {most}");
        for (began, earliest) in began.iter().zip(earliest) {
            let after = (*began - start).as_secs_f64();
            assert!((f64::from(earliest)..f64::from(earliest) + 2.5).contains(&after), "{tenant}: {earliest}, {after}");
        }
    }
}
