//! A provider in memory: commands and files do what a test asks of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use issuebox::sandbox::*;
use issuebox::types::{ExternalId, InstanceId, ObjectState, Timestamp};
use tokio::sync::{Notify, mpsc};

/// A provider in memory.
#[derive(Default)]
pub struct MemoryProvider {
    objects: Mutex<BTreeMap<String, Object>>,
    files: Mutex<BTreeMap<Vec<u8>, Bytes>>,
    made: AtomicU32,
    /// Creates wait for [`MemoryProvider::open`] while this is set.
    pub held: AtomicBool,
    /// Creates are refused while this is set.
    pub refusing: AtomicBool,
    /// Deletes are accepted but do not happen while this is set.
    pub keeping: AtomicBool,
    /// It cannot be looked at while this is set.
    pub unreachable: AtomicBool,
    opened: Notify,
    /// Tells that a command's execution was dropped before it ended.
    pub dropped: Arc<Notify>,
    /// How many pieces a terminal has shown.
    pub shown: Arc<AtomicU32>,
    /// What the next command or file call answers instead of working.
    pub work_error: Mutex<Option<WorkError>>,
    /// How ports are reached, if not by streams.
    pub http_port: Mutex<Option<HttpAccess>>,
    /// Why it has no room for more now.
    pub shortage: Mutex<Option<String>>,
    /// Why it cannot work now.
    pub trouble: Mutex<Option<String>>,
}

impl MemoryProvider {
    /// Lets held creates go on.
    pub fn open(&self) {
        self.held.store(false, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    /// How many objects there are.
    pub fn object_count(&self) -> usize {
        self.objects.lock().expect("not poisoned").len()
    }

    /// Changes objects without a call of the server.
    pub fn outside(&self, change: impl FnOnce(&mut BTreeMap<String, Object>)) {
        change(&mut self.objects.lock().expect("not poisoned"));
    }

    fn looked_at(&self) -> Result<(), ProviderError> {
        match self.unreachable.load(Ordering::SeqCst) {
            true => Err(ProviderError::unavailable("it cannot be looked at")),
            false => Ok(()),
        }
    }

    /// What is in a file.
    pub fn file(&self, path: &[u8]) -> Option<Bytes> {
        self.files.lock().expect("not poisoned").get(path).cloned()
    }

    fn work(&self) -> Result<(), WorkError> {
        self.work_error.lock().expect("not poisoned").take().map_or(Ok(()), Err)
    }

    fn set(&self, target: &Target, state: ObjectState) -> Result<Object, ProviderError> {
        let mut objects = self.objects.lock().expect("not poisoned");
        let object = objects.get_mut(target.external_id.as_str()).ok_or(ProviderError::Absent)?;
        object.state = state;
        Ok(object.clone())
    }
}

#[async_trait]
impl Lifecycle for MemoryProvider {
    fn descriptor(&self) -> Descriptor {
        let isolation =
            Isolation { kind: "memory", seccomp: Enforcement::None, memory_counts: None };
        let capabilities =
            [Capability::Terminal, Capability::Ports, Capability::Tunnels, Capability::Archives];
        Descriptor { isolation, capabilities: capabilities.into(), ..Descriptor::plain() }
    }

    async fn health(&self) -> Health {
        Health {
            identity: Some("memory".into()),
            trouble: self.trouble.lock().expect("not poisoned").clone(),
            limits: Enforcements::from([(LimitKind::Memory, Enforcement::None)]),
        }
    }

    fn capacity(&self) -> Capacity {
        let shortage = self.shortage.lock().expect("not poisoned").clone();
        Capacity { disk: None, shortage }
    }

    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        while self.held.load(Ordering::SeqCst) {
            let opened = self.opened.notified();
            if self.held.load(Ordering::SeqCst) {
                opened.await;
            }
        }
        if self.refusing.load(Ordering::SeqCst) {
            return Err(ProviderError::Refused("no room".into()));
        }
        let id = format!("m-{}", self.made.fetch_add(1, Ordering::SeqCst));
        let object = Object {
            external_id: ExternalId::trusted(id.as_str()),
            name: spec.name,
            labels: Some(spec.labels),
            state: ObjectState::Running,
        };
        self.objects.lock().expect("not poisoned").insert(id, object.clone());
        Ok(object)
    }

    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError> {
        self.looked_at()?;
        let objects = self.objects.lock().expect("not poisoned");
        let is_of_home = |labels: &Labels| labels.home == key.home;
        let is_meant = |object: &&Object| {
            object.name == key.name || object.labels.as_ref().is_some_and(is_of_home)
        };
        Ok(objects.values().filter(is_meant).cloned().collect())
    }

    async fn list(&self, _: InstanceId) -> Result<Vec<Object>, ProviderError> {
        self.looked_at()?;
        Ok(self.objects.lock().expect("not poisoned").values().cloned().collect())
    }

    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.set(&call.target, ObjectState::Running)
    }

    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.set(&call.target, ObjectState::Stopped)
    }

    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError> {
        if self.keeping.load(Ordering::SeqCst) {
            return Err(ProviderError::unavailable("it keeps what it has"));
        }
        let mut objects = self.objects.lock().expect("not poisoned");
        objects.remove(call.target.external_id.as_str()).ok_or(ProviderError::Absent)?;
        Ok(())
    }
}

#[async_trait]
impl Processes for MemoryProvider {
    async fn spawn(&self, _: Target, _: ProcessSpec) -> Result<ProcessId, WorkError> {
        Err(WorkError::Unsupported(Capability::DetachedProcesses))
    }

    async fn tagged(&self, _: Target, _: &str) -> Result<Option<ProcessId>, WorkError> {
        Err(WorkError::Unsupported(Capability::DetachedProcesses))
    }

    async fn attach(&self, _: Target, _: ProcessId, _: Offset) -> Result<ProcessOutput, WorkError> {
        Err(WorkError::Unsupported(Capability::DetachedProcesses))
    }

    async fn write_stdin(&self, _: Target, _: ProcessId, _: Bytes) -> Result<(), WorkError> {
        Err(WorkError::Unsupported(Capability::DetachedProcesses))
    }

    async fn close_stdin(&self, _: Target, _: ProcessId) -> Result<(), WorkError> {
        Err(WorkError::Unsupported(Capability::DetachedProcesses))
    }

    async fn signal(&self, _: Target, _: ProcessId, _: Signal) -> Result<(), WorkError> {
        Err(WorkError::Unsupported(Capability::DetachedProcesses))
    }

    async fn wait(&self, _: Target, _: ProcessId) -> Result<ProcessExit, WorkError> {
        Err(WorkError::Unsupported(Capability::DetachedProcesses))
    }

    async fn port(&self, _: Target, port: u16) -> Result<PortAccess, WorkError> {
        self.work()?;
        if port != 3000 {
            return Err(WorkError::NotListening);
        }
        if let Some(access) = self.http_port.lock().expect("not poisoned").clone() {
            return Ok(PortAccess::Http(access));
        }
        let (ours, theirs) = tokio::io::duplex(16 * 1024);
        tokio::spawn(super::inside::serve(theirs));
        Ok(PortAccess::Stream(Box::new(ours)))
    }

    /// `echo …` prints its arguments, `cat` its input, `fail N` exits with N, `many N` writes N
    /// bytes, `bytes` writes what is not UTF-8, `vanish` ends without an exit, `forever` runs
    /// until it is dropped, also in a shell; anything else cannot be started.
    async fn exec(&self, _: Target, mut request: ExecRequest) -> Result<Execution, WorkError> {
        self.work()?;
        let (tx, events) = mpsc::channel(4);
        let args = request.command[1..].join(" ");
        let dropped = Arc::clone(&self.dropped);
        let number = args.parse::<usize>().unwrap_or(0);
        let is_endless = request.command.last().is_some_and(|last| last == "forever");
        let program = if is_endless { "forever" } else { request.command[0].as_str() };
        let (output, code) = match program {
            "echo" => (Bytes::from(args + "\n"), 0),
            // A shell says its line back.
            "sh" => (Bytes::from(request.command[2..].join(" ")), 0),
            "cat" => {
                let mut input = Vec::new();
                while let Some(piece) = request.stdin.next().await {
                    input.extend_from_slice(&piece);
                }
                (Bytes::from(input), 0)
            }
            "env" => (Bytes::from(format!("{:?} {:?}", request.env, request.cwd)), 0),
            "fail" => (Bytes::from("failing"), i32::try_from(number).unwrap_or(1)),
            "many" => (Bytes::from(vec![b'x'; number]), 0),
            "bytes" => (Bytes::from_static(b"a\xffb"), 0),
            "vanish" => return Ok(Execution { events }),
            "forever" => {
                tokio::spawn(async move {
                    let _ = tx.send(ExecEvent::Stdout(Bytes::from_static(b"begun"))).await;
                    tx.closed().await;
                    dropped.notify_one();
                });
                return Ok(Execution { events });
            }
            other => return Err(WorkError::CommandNotFound(format!("{other}: not found"))),
        };
        tokio::spawn(async move {
            let written = if code == 0 { ExecEvent::Stdout } else { ExecEvent::Stderr };
            let _ = tx.send(written(output)).await;
            let _ = tx.send(ExecEvent::Exit { code, timed_out: false }).await;
        });
        Ok(Execution { events })
    }

    /// `cat` shows what is typed, and what is done to it in brackets, and exits with N once
    /// `exit N` is typed; `many` writes until the reader is gone; `deaf` reads nothing; `vanish` ends
    /// without an exit.
    async fn terminal(&self, _: Target, request: TerminalRequest) -> Result<Terminal, WorkError> {
        self.work()?;
        let (tx, events) = mpsc::channel(1);
        let (input, mut typed) = mpsc::channel::<Bytes>(1);
        let (control, mut controls) = mpsc::channel(1);
        let (dropped, shown) = (Arc::clone(&self.dropped), Arc::clone(&self.shown));
        let show = |text: String| TerminalEvent::Output(Bytes::from(text));
        match request.command[0].as_str() {
            "cat" => drop(tokio::spawn(async move {
                let begun = show(format!("{:?} {:?} {:?}", request.cwd, request.env, request.size));
                let _ = tx.send(begun).await;
                loop {
                    let event = tokio::select! {
                        () = tx.closed() => return dropped.notify_one(),
                        Some(bytes) = typed.recv() => match bytes.strip_prefix(b"exit ") {
                            Some(code) => {
                                let code = std::str::from_utf8(code).expect("a number");
                                TerminalEvent::Exit { code: code.parse().expect("a number") }
                            }
                            None => TerminalEvent::Output(bytes),
                        },
                        Some(control) = controls.recv() => show(format!("[{control:?}]")),
                    };
                    let _ = tx.send(event).await;
                }
            })),
            "many" => drop(tokio::spawn(async move {
                let piece = TerminalEvent::Output(Bytes::from(vec![b'y'; 4096]));
                while tx.send(piece.clone()).await.is_ok() {
                    shown.fetch_add(1, Ordering::SeqCst);
                }
                dropped.notify_one();
            })),
            "deaf" => drop(tokio::spawn(async move {
                let _ = tx.send(show("deaf".into())).await;
                tx.closed().await;
                drop((typed, controls));
                dropped.notify_one();
            })),
            "vanish" => {}
            other => return Err(WorkError::CommandNotFound(format!("{other}: not found"))),
        }
        Ok(Terminal { input, control, events })
    }
}

#[async_trait]
impl Workspace for MemoryProvider {
    /// All files at once, or the entry of one.
    async fn list_files(
        &self,
        _: Target,
        path: WorkspacePath,
        _: u32,
    ) -> Result<FileListing, WorkError> {
        self.work()?;
        let files = self.files.lock().expect("not poisoned");
        let is_file = files.contains_key(path.as_bytes());
        let below = [path.as_bytes(), b"/"].concat();
        if !is_file && !path.is_root() && !files.keys().any(|name| name.starts_with(&below)) {
            return Err(WorkError::NoSuchFile);
        }
        let entries = files
            .iter()
            .filter(|(name, _)| !is_file || name.as_slice() == path.as_bytes())
            .map(|(path, content)| FileEntry {
                path: path.clone(),
                kind: FileKind::File,
                size: content.len() as u64,
                mode: 0o644,
                modified_at: Timestamp::from_unix_ms(0),
                is_unreadable: false,
            })
            .collect();
        Ok(FileListing { entries, truncated: false })
    }

    async fn read_file(
        &self,
        _: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError> {
        self.work()?;
        if path.as_bytes() == b"unreadable" {
            return Err(WorkError::Refused("permission denied".into()));
        }
        let content = self.file(path.as_bytes()).ok_or(WorkError::NoSuchFile)?;
        let (tx, chunks) = mpsc::channel(1);
        let size = content.len() as u64;
        let range = part.of(size).ok_or(WorkError::OutOfRange { size })?;
        let (from, upto) = (range.start as usize, range.end as usize);
        tx.try_send(Ok(content.slice(from..upto))).expect("there is room");
        Ok(FileContent { size, range, chunks })
    }

    async fn write_file(
        &self,
        _: Target,
        path: WorkspacePath,
        mut content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        self.work()?;
        let mut whole = Vec::new();
        while let Some(chunk) = content.recv().await {
            whole.extend_from_slice(&chunk.map_err(WorkError::Broken)?);
        }
        let mut files = self.files.lock().expect("not poisoned");
        match files.insert(path.as_bytes().to_vec(), Bytes::from(whole)) {
            Some(_) => Ok(Written::Replaced),
            None => Ok(Written::Created),
        }
    }

    async fn delete_file(&self, _: Target, path: WorkspacePath) -> Result<(), WorkError> {
        self.work()?;
        let mut files = self.files.lock().expect("not poisoned");
        files.remove(path.as_bytes()).map(|_| ()).ok_or(WorkError::NoSuchFile)
    }

    /// A directory is a file without content whose name ends in a slash.
    async fn make_directory(&self, _: Target, path: WorkspacePath) -> Result<Written, WorkError> {
        self.work()?;
        let mut files = self.files.lock().expect("not poisoned");
        if files.contains_key(path.as_bytes()) {
            return Err(WorkError::Exists("it is not a directory".into()));
        }
        let name = [path.as_bytes(), b"/"].concat();
        Ok(files.insert(name, Bytes::new()).map_or(Written::Created, |_| Written::Replaced))
    }

    async fn move_file(
        &self,
        _: Target,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError> {
        self.work()?;
        let mut files = self.files.lock().expect("not poisoned");
        let is_taken = files.contains_key(to.as_bytes());
        if is_taken && !overwrite {
            return Err(WorkError::Exists("the new place is taken".into()));
        }
        let content = files.remove(from.as_bytes()).ok_or(WorkError::NoSuchFile)?;
        files.insert(to.as_bytes().to_vec(), content);
        Ok(if is_taken { Written::Replaced } else { Written::Created })
    }

    async fn set_file_mode(&self, _: Target, path: WorkspacePath, _: u32) -> Result<(), WorkError> {
        self.work()?;
        self.file(path.as_bytes()).map(drop).ok_or(WorkError::NoSuchFile)
    }

    /// What was last unpacked there, byte for byte.
    async fn pack_directory(
        &self,
        _: Target,
        path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError> {
        self.work()?;
        let (tx, chunks) = mpsc::channel(2);
        if path.as_bytes() == b"forever" {
            let dropped = Arc::clone(&self.dropped);
            tokio::spawn(async move {
                let _ = tx.send(Ok(Bytes::from_static(b"begun"))).await;
                tx.closed().await;
                dropped.notify_one();
            });
            return Ok(chunks);
        }
        let name = [path.as_bytes(), b".tar"].concat();
        let content = self.file(&name).ok_or(WorkError::NoSuchFile)?;
        tx.try_send(Ok(content)).expect("there is room");
        Ok(chunks)
    }

    async fn unpack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        let name = [path.as_bytes(), b".tar"].concat();
        let name = WorkspacePath::parse(&name).expect("a path");
        self.write_file(target, name, archive).await.map(drop)
    }

    async fn walk(&self, _: Target) -> Result<WalkedTree, WorkError> {
        self.work()?;
        let files = self.files.lock().expect("not poisoned");
        let entry = |(name, content): (&Vec<u8>, &Bytes)| {
            let (path, kind) = match name.strip_suffix(b"/") {
                Some(path) => (path.to_vec(), FileKind::Directory),
                None => (name.clone(), FileKind::File),
            };
            let (size, link_target) = (content.len() as u64, Vec::new());
            TreeEntry { path, kind, size, mode: 0o755, modified_ns: 0, link_target }
        };
        Ok(WalkedTree { entries: files.iter().map(entry).collect(), left_out: Vec::new() })
    }
}
