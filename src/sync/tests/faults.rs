//! An object storage in memory whose writes fail to order.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Notify;

/// The storage of one test.
#[derive(Debug)]
pub struct FailingStore {
    inner: InMemory,
    writes: AtomicUsize,
    /// How many writes there are before the others fail.
    writes_max: AtomicUsize,
    /// The write that fails alone.
    fails_at: AtomicUsize,
    /// When objects were written, by the clock of a model.
    written: Mutex<HashMap<Path, SystemTime>>,
    /// That clock, in milliseconds since 1970; 0 for the system's.
    now_ms: AtomicI64,
    /// The write that waits, and what it waits for.
    gate: Mutex<Option<(usize, Arc<WriteGate>)>>,
}

/// Where a write waits.
#[derive(Debug)]
pub struct WriteGate {
    /// Notified when the write is there.
    pub reached: Notify,
    /// What lets it go on.
    pub open: Notify,
}

impl FailingStore {
    pub fn new() -> Arc<Self> {
        let (writes, writes_max) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let fails_at = AtomicUsize::new(usize::MAX);
        Arc::new(Self {
            inner: InMemory::new(),
            writes,
            writes_max,
            fails_at,
            written: Mutex::default(),
            now_ms: AtomicI64::new(0),
            gate: Mutex::default(),
        })
    }

    /// How many writes there were.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// After so many writes more the server of the test is dead: none comes through.
    pub fn fail_after(&self, writes: usize) {
        self.writes_max.store(self.writes() + writes, Ordering::SeqCst);
    }

    /// The write behind so many more fails, and those after it do not.
    pub fn fail_at(&self, writes: usize) {
        self.fails_at.store(self.writes() + writes, Ordering::SeqCst);
    }

    /// The clock by which objects are written from now on.
    pub fn set_now(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// The write behind so many more waits at this gate.
    pub fn wait_at(&self, writes: usize) -> Arc<WriteGate> {
        let gate = Arc::new(WriteGate { reached: Notify::new(), open: Notify::new() });
        let at = self.writes() + writes;
        *self.gate.lock().expect("not poisoned") = Some((at, Arc::clone(&gate)));
        gate
    }

    /// Removes an object that is there.
    pub async fn lose(&self, path: &Path) {
        self.inner.head(path).await.expect("the object is there");
        self.inner.delete(path).await.expect("memory forgets it");
    }

    /// How many objects there are below a path.
    pub async fn count(&self, path: &str) -> usize {
        let listed = self.inner.list(Some(&Path::from(path)));
        listed.try_collect::<Vec<_>>().await.expect("listed").len()
    }

    async fn gated_write(&self) -> Result<()> {
        let gate = {
            let mut gate = self.gate.lock().expect("not poisoned");
            let is_there = gate.as_ref().is_some_and(|(at, _)| *at == self.writes());
            if is_there { gate.take() } else { None }
        };
        if let Some((_, gate)) = gate {
            gate.reached.notify_one();
            gate.open.notified().await;
        }
        self.write()
    }

    fn note(&self, path: &Path) {
        let now_ms = self.now_ms.load(Ordering::SeqCst);
        if now_ms > 0 {
            let now = UNIX_EPOCH + Duration::from_millis(now_ms.cast_unsigned());
            self.written.lock().expect("not poisoned").insert(path.clone(), now);
        }
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if let Some(at) = self.written.lock().expect("not poisoned").get(&meta.location) {
            meta.last_modified = (*at).into();
        }
        meta
    }

    /// All writes come through again.
    pub fn heal(&self) {
        self.writes_max.store(usize::MAX, Ordering::SeqCst);
    }

    /// Replaces an object that is there.
    pub async fn overwrite(&self, path: &Path, content: &[u8]) {
        self.inner.head(path).await.expect("the object is there");
        let payload = PutPayload::from(Bytes::copy_from_slice(content));
        self.inner.put(path, payload).await.expect("memory takes it");
    }

    fn write(&self) -> Result<()> {
        let max = self.writes_max.load(Ordering::SeqCst);
        let counted = |count: usize| (count < max).then_some(count + 1);
        match self.writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) {
            Ok(count) if count != self.fails_at.load(Ordering::SeqCst) => Ok(()),
            Ok(_) | Err(_) => {
                Err(object_store::Error::Generic { store: "test", source: "killed".into() })
            }
        }
    }
}

impl fmt::Display for FailingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failing")
    }
}

#[async_trait]
impl ObjectStore for FailingStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.gated_write().await?;
        self.note(path);
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.gated_write().await?;
        self.note(path);
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let got = self.inner.get_opts(path, options).await?;
        Ok(GetResult { meta: self.dated(got.meta.clone()), ..got })
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        // Each one is a write that may fail.
        let may = paths.map(|path| path.and_then(|path| self.write().map(|()| path)));
        let may: Vec<_> = may.collect().now_or_never().expect("in memory");
        self.inner.delete_stream(futures_util::stream::iter(may).boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed: Vec<_> = self.inner.list(prefix).collect().now_or_never().expect("in memory");
        let dated = listed.into_iter().map(|meta| meta.map(|meta| self.dated(meta)));
        futures_util::stream::iter(dated.collect::<Vec<_>>()).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
