//! Logging in with GitHub: the link leads to GitHub, and GitHub leads the browser back.
//!
//! Browsers do not send a `SameSite=Strict` cookie with a page to which another site led them, nor with a
//! redirect from there. So the cookie of a begun log-in is `Lax`, and after the log-in a page of ours goes on
//! to the requested one: with that the browser sends the session's cookie.

use std::sync::Arc;
use std::time::Duration;

use actix_web::cookie::{Cookie, SameSite, time::Duration as CookieAge};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, ResponseError, get, web};
use maud::html;

use crate::github::sign_in::{SignInError, grant_of};
use crate::http::Shared;
use crate::http::auth::{check_attempts, client_address, count_failure, given_cookies, own_url};
use crate::http::error::ApiError;
use crate::http::people::{LOGIN_LIFETIME, PeopleSetup, ReturnedLogin};
use crate::http::query::Query;
use crate::http::routes::unknown_route;
use crate::http::sessions::{AdmittedPerson, SESSION_COOKIE_HTTPS, SessionHolder};
use crate::issue::instruction::GithubUser;
use crate::types::inert;

use super::form::is_local_path;
use super::session::{log_in_page, session_cookie};
use super::{IN_A_QUERY, html as page_of, respond, shell};

/// The path that begins a log-in.
const BEGIN: &str = "/login/github";
/// The path that GitHub leads the browser back to.
const BACK: &str = "/login/github/callback";
/// Longest path that is shown after the log-in, in bytes: it is kept meanwhile.
const NEXT_LEN_MAX: usize = 2_048;
/// How long GitHub may take for all questions about one person.
const ASK_TIME_MAX: Duration = Duration::from_secs(60);

/// The address that begins a log-in, at which the browser keeps the cookie; `None` where people do not log in
/// with GitHub.
pub fn begin_url(shared: &Shared, next: &str) -> Option<String> {
    shared.edge.people.as_ref()?;
    let next = percent_encoding::utf8_percent_encode(next, IN_A_QUERY);
    Some(format!("{}{BEGIN}?next={next}", own_url(shared)))
}

/// Why a person is not logged in.
struct LoginRefusal {
    status: StatusCode,
    /// For the person.
    words: String,
}

impl LoginRefusal {
    fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self { status, words: words.into() }
    }
}

impl From<ApiError> for LoginRefusal {
    fn from(error: ApiError) -> Self {
        Self::new(error.status_code(), error.message())
    }
}

/// Leads the browser to GitHub.
#[get("/login/github")]
pub async fn begin(
    shared: web::Data<Shared>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let people = shared.edge.people.as_ref().ok_or_else(unknown_route)?;
    let mut query = Query::parse(request.query_string());
    let is_usable = |next: &String| next.len() <= NEXT_LEN_MAX && is_local_path(next);
    let next = query.text("next")?.filter(is_usable).unwrap_or_else(|| "/".into());
    query.finish()?;
    let (edge, back) = (&shared.edge, format!("{}{BACK}", own_url(&shared)));
    let name = login_cookie_name(&shared);
    let known = given_cookies(&request, name).into_iter().next();
    let address = client_address(&shared, &request);
    let now = edge.clock.now();
    let (ask, cookie) = shared.logins.begin((back, next), known, address, &*edge.ids, now);
    let age = i64::try_from(LOGIN_LIFETIME.as_secs()).expect("some minutes");
    let cookie = Cookie::build(name, cookie)
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(shared.session_cookie() == SESSION_COOKIE_HTTPS)
        .max_age(CookieAge::seconds(age))
        .finish();
    Ok(HttpResponse::build(StatusCode::SEE_OTHER)
        .insert_header((header::LOCATION, people.sign_in.authorize_url(&ask)))
        .cookie(cookie)
        .finish())
}

/// Logs the person in whom GitHub led back, and goes on to the requested page.
#[get("/login/github/callback")]
pub async fn come_back(
    shared: web::Data<Shared>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let people = shared.edge.people.as_ref().ok_or_else(unknown_route)?;
    // GitHub may add parameters.
    let mut query = Query::parse(request.query_string());
    let state = query.text("state")?.unwrap_or_default();
    let cookies = given_cookies(&request, login_cookie_name(&shared));
    let begun = shared.logins.take(&state, &cookies, shared.edge.clock.now());
    let next = begun.as_ref().map_or("/", |begun| begun.next.as_str()).to_owned();
    let done = match begun {
        Some(begun) => log_in(&shared, people, &request, &mut query, begun).await,
        None => Err(LoginRefusal::new(
            StatusCode::FORBIDDEN,
            "This log-in was not begun in this browser, or more than 10 minutes ago, or it was used already. \
             Log in again.",
        )),
    };
    let mut answer = match done {
        Ok((person, secret)) => {
            let main = html! {
                div .login .card {
                    h1 { "Logged in" }
                    p .lead { "You are logged in as " bdi { (inert(&person.login)) } "." }
                    a .button .primary href=(next) { "Continue" }
                }
            };
            let mut answer = page_of(&shell::bare("Logged in", &main));
            let age = i64::try_from(people.session.as_secs()).unwrap_or(i64::MAX);
            let cookie = session_cookie(&shared, secret, CookieAge::seconds(age));
            answer.add_cookie(&cookie).map_err(|_| ApiError::field("cookie", "cannot be set"))?;
            let go_on = HeaderValue::try_from(format!("0; url={next}"));
            let go_on = go_on.map_err(|_| ApiError::field("next", "is no path"))?;
            answer.headers_mut().insert(header::REFRESH, go_on);
            answer
        }
        Err(LoginRefusal { status, words }) => {
            tracing::info!(why = %inert(&words), "a log-in with GitHub was refused");
            let page = log_in_page(Some(&words), &next, begin_url(&shared, &next).as_deref());
            respond(HttpResponse::build(status), &page)
        }
    };
    // The address holds the code.
    let policy = HeaderValue::from_static("strict-origin");
    answer.headers_mut().insert(header::REFERRER_POLICY, policy);
    Ok(answer)
}

/// Asks GitHub who the person is and what lets the person in, and begins the session: its secret.
async fn log_in(
    shared: &Shared,
    people: &PeopleSetup,
    request: &HttpRequest,
    query: &mut Query,
    begun: ReturnedLogin,
) -> Result<(GithubUser, String), LoginRefusal> {
    if let Some(error) = query.text("error")? {
        return Err(not_confirmed(&error));
    }
    let code = query.text("code")?.unwrap_or_default();
    // Each code is a question to GitHub.
    check_attempts(shared, request)?;
    let Ok(_place) = shared.logins.asked.try_acquire() else {
        let words = "Too many people log in at this moment. Try again shortly.";
        return Err(LoginRefusal::new(StatusCode::SERVICE_UNAVAILABLE, words));
    };
    let edge = &shared.edge;
    let grants = edge.access.grants();
    let asked = async {
        let person = people.sign_in.person(&code, &begun.proof).await.map_err(|error| {
            if error == SignInError::Code {
                count_failure(shared, request);
            }
            unknown_person(&error)
        })?;
        let grant = grant_of(&grants, &person, edge.github.as_deref()).await;
        Ok::<_, LoginRefusal>((person, grant))
    };
    let (person, grant) = tokio::time::timeout(ASK_TIME_MAX, asked).await.map_err(|_| {
        let words = "GitHub did not answer in time. Try again later, or use a token.";
        LoginRefusal::new(StatusCode::SERVICE_UNAVAILABLE, words)
    })??;
    let shown = format!("{} (id {})", person.login, person.id);
    let (key, grant) = match grant {
        Ok(Some(found)) => found,
        Ok(None) => {
            // Each such log-in costs several questions to GitHub.
            count_failure(shared, request);
            let words = format!(
                "GitHub says that you are {shown}, whom no rule of this server lets in. Ask its admin to \
                 add one to auth.github.grant."
            );
            return Err(LoginRefusal::new(StatusCode::FORBIDDEN, words));
        }
        Err(error) => {
            tracing::warn!(login = %inert(&person.login), user = person.id, %error, "cannot ask GitHub what lets a person in");
            let words = format!(
                "GitHub did not say what {shown} may do here. Try again later, or ask the admin of this \
                 server: its log has the reason."
            );
            return Err(LoginRefusal::new(StatusCode::SERVICE_UNAVAILABLE, words));
        }
    };
    // The rules may have changed meanwhile.
    if edge.access.grant(&key).is_none() {
        let words = format!(
            "The account {} is disabled, or the rules have just changed. Ask the admin of this server.",
            grant.account
        );
        return Err(LoginRefusal::new(StatusCode::FORBIDDEN, words));
    }
    let (login, rule) = (inert(&person.login).into_owned(), grant.to_string());
    let admitted = AdmittedPerson { user_id: person.id, login: person.login.clone(), grant, key };
    let holder = SessionHolder::Person(Arc::new(admitted));
    let now = edge.clock.now();
    let secret = shared.sessions.begin_for(holder, people.session, &*edge.ids, now).await?;
    tracing::info!(login, user = person.id, rule, "a person logged in with GitHub");
    Ok((person, secret))
}

/// Why GitHub led the browser back without a code.
fn not_confirmed(error: &str) -> LoginRefusal {
    if error == "access_denied" {
        let words = "You cancelled the log-in at GitHub. Log in again, or use a token.";
        return LoginRefusal::new(StatusCode::FORBIDDEN, words);
    }
    let words = format!(
        "GitHub refused the log-in ({}). Ask the admin of this server to check the callback URL of the \
         GitHub App.",
        inert(error)
    );
    LoginRefusal::new(StatusCode::BAD_GATEWAY, words)
}

/// Why it is not known who the person is.
fn unknown_person(error: &SignInError) -> LoginRefusal {
    match error {
        SignInError::Code => {
            let words = "GitHub does not accept this log-in any more. Log in again.";
            LoginRefusal::new(StatusCode::FORBIDDEN, words)
        }
        SignInError::Misconfigured(_) => {
            tracing::error!(%error, "people cannot log in with GitHub: check auth.github.client_id, auth.github.client_secret, and the callback URL of the GitHub App");
            let words = "The log-in with GitHub is configured wrongly. Ask the admin of this server: its log \
                         says what GitHub does not accept.";
            LoginRefusal::new(StatusCode::BAD_GATEWAY, words)
        }
        SignInError::Refused(_) => {
            LoginRefusal::new(StatusCode::FORBIDDEN, format!("{error}. Log in again."))
        }
        SignInError::Asked(_) => {
            tracing::warn!(%error, "cannot ask GitHub who a person is");
            let words = "GitHub cannot be asked who you are. Try again later, or use a token.";
            LoginRefusal::new(StatusCode::SERVICE_UNAVAILABLE, words)
        }
    }
}

/// The name of the cookie of a begun log-in.
fn login_cookie_name(shared: &Shared) -> &'static str {
    match shared.session_cookie() {
        SESSION_COOKIE_HTTPS => "__Host-issuebox_login",
        _ => "issuebox_login",
    }
}
