//! What the suite says of a store that forgets to refund.

use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Settlement, Settling, Store, StoreDecision,
};
use tollgate::{Error, MemoryStore};

struct Forgetful(MemoryStore);

impl Store for Forgetful {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.0.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let kept: Vec<_> = changes.iter().copied().filter(|one| !matches!(one.change, Change::Refund(_))).collect();
        self.0.settle(receipt, &kept)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.0.adjust(counter, change)
    }
}

#[tokio::main]
async fn main() {
    let forgetful = async |clock| Forgetful(MemoryStore::builder().clock(clock).build());
    print!("{}", tollgate_test::conformance(forgetful).await);
}
