//! The objects: one file each, and an index of them in memory.
//!
//! The files are the truth. The index only saves reading 20,000 of them for one name; before each
//! use it takes in what was changed in the directory since, by this process or by anybody else. The
//! first use reads all of them, so that a server is ready before.
//! A file is written beside its place and renamed to it, so that no reader ever sees half of one.
//!
//! A file that can't be understood may be anybody's, so as long as it is there no name can be
//! called free: searches answer *unavailable* and name it.
//!
//! # What is accepted
//! Nothing is synced: an object may be lost with the machine's power, as a real provider's may be
//! lost at any time. A file that is removed from outside in the very moment in which its state is
//! rewritten comes back.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::calls::{self, LabelMap};
use super::watch::{DirectoryChanges, Watch};
use super::workload::WorkloadFile;
use crate::sandbox::{CreateSpec, Labels, Object, ObjectKey, ProviderError};
use crate::types::{
    AccountName, ExternalId, HomeId, InstanceId, ObjectName, ObjectState, Timestamp, share_equal,
};

/// Where files are written before they are renamed to their place, and the identity is kept.
/// Hidden, so that the directory shows objects and calls and nothing else.
pub(super) const PRIVATE_DIR: &str = ".simulated";
/// The file in it that holds the provider's identity.
const IDENTITY_FILE: &str = "identity";
/// How the files of objects end.
const ENDING: &str = ".json";

/// All objects of a directory.
#[derive(Debug)]
pub(super) struct SimObjects {
    dir: PathBuf,
    watch: Watch,
    by_id: BTreeMap<ExternalId, Object>,
    by_name: BTreeSet<(ObjectName, ExternalId)>,
    by_home: BTreeSet<(HomeId, ExternalId)>,
    unreadable: BTreeMap<ExternalId, String>,
    /// The installation and the account of the object that was read last. Most others have the same, and
    /// share these texts.
    last_owner: Option<(InstanceId, AccountName)>,
    /// Names of files that were put in place here and whose notes were not read yet.
    own: HashSet<String>,
    /// Whether the log of calls was removed since the last question.
    log_gone: bool,
    /// Whether the files have been read.
    is_read: bool,
}

impl SimObjects {
    /// Opens the directory, and creates it if it is missing.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let private = dir.join(PRIVATE_DIR);
        fs::create_dir_all(&private)?;
        for unfinished in fs::read_dir(&private)? {
            let path = unfinished?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                fs::remove_file(path)?;
            }
        }
        // It can be read.
        drop(fs::read_dir(dir)?);
        // Watched first, so that no change falls between reading and watching.
        Ok(Self {
            dir: dir.to_owned(),
            watch: Watch::on(dir),
            by_id: BTreeMap::new(),
            by_name: BTreeSet::new(),
            by_home: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            last_owner: None,
            own: HashSet::new(),
            log_gone: false,
            is_read: false,
        })
    }

    /// The provider's identity; `fresh` where it has none yet.
    pub(super) fn identity(&self, fresh: String) -> io::Result<String> {
        let path = self.dir.join(PRIVATE_DIR).join(IDENTITY_FILE);
        match fs::read_to_string(&path) {
            Ok(identity) => Ok(identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::write(&path, &fresh)?;
                Ok(fresh)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes in what was changed in the directory. Everything below speaks of the moment of the
    /// last call of this.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] where the directory can't be read.
    pub(super) fn refresh(&mut self) -> Result<(), ProviderError> {
        match self.watch.changes() {
            DirectoryChanges::Names(changes) if self.is_read => {
                for change in changes {
                    if change.renamed_to && self.own.remove(&change.name) {
                        continue;
                    }
                    self.log_gone |= change.name == calls::FILE_NAME;
                    self.read_one(&change.name);
                }
                self.own.clear();
                Ok(())
            }
            DirectoryChanges::Names(_) | DirectoryChanges::Any => {
                self.own.clear();
                self.log_gone |= !self.dir.join(calls::FILE_NAME).exists();
                self.is_read = false;
                self.read_all().map_err(|error| {
                    let dir = self.dir.display();
                    ProviderError::unavailable(format!(
                        "the directory {dir} can't be read: {error}"
                    ))
                })?;
                self.is_read = true;
                Ok(())
            }
        }
    }

    /// Whether the log of calls was taken away since this was last asked.
    pub(super) fn log_was_taken(&mut self) -> bool {
        std::mem::take(&mut self.log_gone)
    }

    /// The object of this id.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] where its file can't be understood.
    pub(super) fn get(&self, id: &ExternalId) -> Result<Option<&Object>, ProviderError> {
        match self.unreadable.get(id) {
            Some(why) => Err(self.unreadable_error(id, why)),
            None => Ok(self.by_id.get(id)),
        }
    }

    /// The objects of this name, oldest id first.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] where any file can't be understood, as for all below.
    pub(super) fn named(&self, name: &ObjectName) -> Result<Vec<&Object>, ProviderError> {
        self.all_readable()?;
        let from = (name.clone(), ExternalId::trusted(""));
        let of_name = self.by_name.range(from..).take_while(|(of, _)| of == name);
        Ok(of_name.filter_map(|(_, id)| self.by_id.get(id)).collect())
    }

    /// The objects of this name and those that carry this home's label.
    pub(super) fn find(&self, key: &ObjectKey) -> Result<Vec<Object>, ProviderError> {
        let mut found = self.named(&key.name)?;
        let from = (key.home, ExternalId::trusted(""));
        let of_home = self.by_home.range(from..).take_while(|(home, _)| *home == key.home);
        found.extend(of_home.filter_map(|(_, id)| self.by_id.get(id)).filter(|object| {
            let labels = object.labels.as_ref();
            object.name != key.name && labels.is_some_and(|of| of.instance == key.instance)
        }));
        Ok(found.into_iter().cloned().collect())
    }

    /// The objects of this installation, oldest id first.
    pub(super) fn of_instance(&self, instance: &InstanceId) -> Result<Vec<Object>, ProviderError> {
        self.all_readable()?;
        let ours = |object: &&Object| {
            object.labels.as_ref().is_some_and(|labels| labels.instance == *instance)
        };
        // Nearly all are: a list that grew would be copied, and be larger than it must.
        let mut found = Vec::with_capacity(self.by_id.len());
        found.extend(self.by_id.values().filter(ours).cloned());
        Ok(found)
    }

    /// Makes a running object.
    pub(super) fn make(
        &mut self,
        id: ExternalId,
        spec: &CreateSpec,
        at: Timestamp,
    ) -> Result<Object, ProviderError> {
        let object = Object {
            external_id: id,
            name: spec.name.clone(),
            labels: Some(spec.labels.clone()),
            state: ObjectState::Running,
        };
        let file = serde_json::to_vec(&NewFile {
            name: object.name.as_str(),
            labels: LabelMap(&spec.labels.to_pairs()),
            state: object.state.as_str(),
            external_id: object.external_id.as_str(),
            created_at: at.to_string(),
            workload: WorkloadFile::of(&spec.template.workload),
        })
        .expect("text and maps of text are always JSON");
        self.put(&object.external_id, &file)?;
        self.index(object.clone());
        Ok(object)
    }

    /// Gives an object another state and leaves everything else in its file as it is.
    pub(super) fn set_state(
        &mut self,
        id: &ExternalId,
        state: ObjectState,
    ) -> Result<Object, ProviderError> {
        let Some(before) = self.by_id.get(id) else { return Err(ProviderError::Absent) };
        let word = state.as_str();
        let object = Object { state, ..before.clone() };
        if object == *before {
            return Ok(object);
        }
        let mut file: serde_json::Map<String, serde_json::Value> =
            match fs::read(self.path(id)).map(|bytes| serde_json::from_slice(&bytes)) {
                Ok(Ok(file)) => file,
                Ok(Err(error)) => return Err(self.unreadable_error(id, &error.to_string())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(ProviderError::Absent);
                }
                Err(error) => return Err(broken(&error)),
            };
        file.insert("state".into(), word.into());
        let file = serde_json::to_vec(&file).expect("what was JSON is JSON");
        self.put(id, &file)?;
        self.index(object.clone());
        Ok(object)
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, id: &ExternalId) -> Result<(), ProviderError> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(broken(&error)),
            Ok(()) | Err(_) => {
                self.forget(id);
                Ok(())
            }
        }
    }

    fn path(&self, id: &ExternalId) -> PathBuf {
        self.dir.join(format!("{id}{ENDING}"))
    }

    /// Puts a file in its place, whole.
    fn put(&mut self, id: &ExternalId, file: &[u8]) -> Result<(), ProviderError> {
        let name = format!("{id}{ENDING}");
        let unfinished = self.dir.join(PRIVATE_DIR).join(&name);
        fs::write(&unfinished, file)
            .and_then(|()| fs::rename(&unfinished, self.dir.join(&name)))
            .map_err(|error| broken(&error))?;
        self.own.insert(name);
        Ok(())
    }

    fn read_all(&mut self) -> io::Result<()> {
        self.by_id.clear();
        self.by_name.clear();
        self.by_home.clear();
        self.unreadable.clear();
        for entry in fs::read_dir(&self.dir)? {
            if let Some(name) = entry?.file_name().to_str() {
                self.read_one(name);
            }
        }
        Ok(())
    }

    /// Updates the index from the file of this name, if it is an object's.
    fn read_one(&mut self, file_name: &str) {
        let Some(id) = file_name.strip_suffix(ENDING).filter(|id| !id.is_empty()) else { return };
        let id = ExternalId::trusted(id);
        self.forget(&id);
        match fs::read(self.dir.join(file_name)) {
            Ok(bytes) => match parse(&id, &bytes) {
                Ok(object) => self.index(object),
                Err(why) => drop(self.unreadable.insert(id, why)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => drop(self.unreadable.insert(id, error.to_string())),
        }
    }

    fn index(&mut self, mut object: Object) {
        let id = object.external_id.clone();
        self.by_name.insert((object.name.clone(), id.clone()));
        if let Some(labels) = &mut object.labels {
            self.by_home.insert((labels.home, id.clone()));
            let mut owner = (labels.instance.clone(), labels.account.clone());
            share_equal(&mut self.last_owner, &mut owner);
            (labels.instance, labels.account) = owner;
        }
        self.by_id.insert(id, object);
    }

    fn forget(&mut self, id: &ExternalId) {
        self.unreadable.remove(id);
        if let Some(object) = self.by_id.remove(id) {
            self.by_name.remove(&(object.name, id.clone()));
            if let Some(labels) = object.labels {
                self.by_home.remove(&(labels.home, id.clone()));
            }
        }
    }

    fn all_readable(&self) -> Result<(), ProviderError> {
        match self.unreadable.first_key_value() {
            Some((id, why)) => Err(self.unreadable_error(id, why)),
            None => Ok(()),
        }
    }

    fn unreadable_error(&self, id: &ExternalId, why: &str) -> ProviderError {
        let path = self.path(id);
        ProviderError::unavailable(format!("{} is no object's file: {why}", path.display()))
    }
}

fn broken(error: &io::Error) -> ProviderError {
    ProviderError::Broken(format!("a simulated object's file can't be changed: {error}"))
}

/// A file as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewFile<'a> {
    name: &'a str,
    labels: LabelMap<'a>,
    state: &'a str,
    external_id: &'a str,
    created_at: String,
    #[serde(skip_serializing_if = "WorkloadFile::is_empty")]
    workload: WorkloadFile<'a>,
}

/// What is needed of a file, which others may have written.
#[derive(Deserialize)]
struct FoundFile {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    state: String,
    /// Why an object in the state `error` cannot run.
    #[serde(default)]
    message: String,
}

fn parse(id: &ExternalId, bytes: &[u8]) -> Result<Object, String> {
    let file: FoundFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let state = ObjectState::parse(&file.state)
        .ok_or_else(|| format!("{:?} is no state of an object", file.state))?;
    let state = match state {
        ObjectState::Error { .. } => ObjectState::Error { message: file.message },
        ObjectState::Partial
        | ObjectState::Running
        | ObjectState::Stopped
        | ObjectState::Destroying => state,
    };
    Ok(Object {
        external_id: id.clone(),
        name: ObjectName::trusted(file.name),
        labels: Labels::from_pairs(|key| file.labels.get(key).map(String::as_str)),
        state,
    })
}
