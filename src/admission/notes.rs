//! Events for the owners of pods that are not injected, or not as their annotations say.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::injection::Injector;
use crate::publish::{Reporter, Told};

/// More than these wait for nobody: Events are hints, and the reason is on the pod.
const WAITING: usize = 256;

/// One Event to be.
#[derive(Clone, Debug)]
pub struct Note {
    about: ObjectReference,
    injector: Injector,
    reason: &'static str,
    text: String,
}

impl Note {
    /// What the controller of a pod should know; `None` for a pod that nobody controls: its creator has been warned.
    pub fn for_owner(
        pod: &Value,
        namespace: &str,
        injector: Injector,
        reason: &'static str,
        warnings: &[String],
    ) -> Option<Self> {
        let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
        let owner = owners.iter().find(|owner| owner["controller"] == true)?;
        let text = |field: &str| owner[field].as_str().map(str::to_owned);
        let about = ObjectReference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: Some(text("name")?),
            uid: Some(text("uid")?),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        Some(Note { about, injector, reason, text: warnings.join("; ") })
    }
}

/// Where notes are handed in. Never waits, and never holds up an answer.
#[derive(Clone)]
pub struct Notes(mpsc::Sender<Note>);

impl Notes {
    /// A sender, and who turns what is sent into Events.
    pub fn new(client: Client, reporter: Reporter) -> (Self, Writer) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Notes(sender), Writer { client, reporter, receiver })
    }

    /// Hands in a note; dropped when too many wait.
    pub fn send(&self, note: Note) {
        if self.0.try_send(note).is_err() {
            debug!("Dropped an Event about a pod: too many are waiting");
        }
    }
}

/// Writes Events.
pub struct Writer {
    client: Client,
    reporter: Reporter,
    receiver: mpsc::Receiver<Note>,
}

impl Writer {
    /// Writes until nobody sends any more.
    pub async fn run(mut self) {
        while let Some(note) = self.receiver.recv().await {
            let namespace = note.about.namespace.clone().unwrap_or_default();
            let reason = if note.reason.is_empty() { "InjectionWarning" } else { "InjectionSkipped" };
            let event = self.reporter.tell(Told {
                about: note.about,
                attention: true,
                action: "Inject",
                reason: reason.to_owned(),
                note: note.text,
                // The pods of one owner differ in nothing that matters here.
                fingerprint: format!("{} {}", note.injector, note.reason),
            });
            let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
            match api.create(&PostParams::default(), &event).await {
                Ok(_) => {}
                Err(Error::Api(status)) if status.code == 409 => debug!("Event exists already"),
                Err(error) => {
                    let error = crate::observe::chain(&error);
                    warn!(%error, "Failed to record Event: {error}");
                }
            }
        }
    }
}
