//! An App is registered at the in-memory GitHub: the code is exchanged once, and the key is proved.

use super::*;
use crate::github::model::{FaultKind, ModelFault, OTHER_KEY};
use crate::github::registration::{AppRegistration, AppRequest, NewApp};

fn registrar(model: &GithubModel) -> AppRegistrar {
    AppRegistrar::new(&model.api_url(), Arc::new(SystemClock)).expect("the address is right")
}

fn code(model: &GithubModel, hook: Option<&str>) -> String {
    let request = AppRequest::new("My Box", "").expect("a good name");
    model.approve_manifest(request.manifest("https://box.example", "https://box.example/x", hook))
}

#[tokio::test]
async fn a_code_is_exchanged_once_for_an_app_whose_key_is_proved() {
    let model = GithubModel::start().expect("it starts");
    let registrar = registrar(&model);
    let code = code(&model, Some("https://box.example/hook"));
    let made = registrar.convert(&code).await.expect("made");
    let NewApp { app, key, webhook_secret } = made;
    let (id, slug, secret) = model.app();
    assert_eq!((app.id, &app.slug), (id, &slug));
    assert_eq!(app.html_url, format!("{}/apps/my-box", model.web_url()));
    assert_eq!(webhook_secret, Some(Secret::new(secret)));
    assert_eq!(registrar.prove(app.id, &key).await, Ok(app.clone()));
    let again = registrar.convert(&code).await;
    assert!(matches!(again, Err(GitHubError::NotFound(_))), "{again:?}");
    for (id, key) in [(app.id, OTHER_KEY), (app.id, "no key"), (app.id + 1, APP_KEY)] {
        let refused = registrar.prove(id, &Secret::new(key)).await;
        assert!(matches!(refused, Err(GitHubError::Unauthorized(_))), "{refused:?}");
    }
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_app_without_a_webhook_has_no_secret_and_a_wrong_clock_is_no_wrong_key() {
    let model = GithubModel::start().expect("it starts");
    model.move_clock(jiff::SignedDuration::from_hours(-2));
    let registrar = registrar(&model);
    let (id, _, _) = model.app();
    let proved = registrar.prove(id, &Secret::new(APP_KEY)).await;
    assert_eq!(proved.expect("by GitHub's clock").id, id);
    let made = registrar.convert(&code(&model, None)).await.expect("made");
    assert_eq!(made.webhook_secret, None);
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_is_not_asked_again() {
    let model = GithubModel::start().expect("it starts");
    model.order(ModelFault::on("POST", "app-manifests/*/conversions", FaultKind::LostAfter));
    let code = code(&model, None);
    let lost = registrar(&model).convert(&code).await;
    assert!(matches!(lost, Err(GitHubError::Unknown(_))), "{lost:?}");
    assert_eq!(model.calls_to("POST", "/app-manifests/", "/conversions").len(), 1);
}
