"""Django's settings: wiring only. What an operator may change stands in `config.environment`."""

from datetime import timedelta

from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE

from config.environment import ROOT, Environment
from config.logging import configuration
from tenants.api.schema import COMPONENTS

ENVIRONMENT = Environment()

DEBUG = False
SECRET_KEY = ENVIRONMENT.secret()
ALLOWED_HOSTS = [host for host in ENVIRONMENT.allowed_hosts.split(",") if host]
CSRF_TRUSTED_ORIGINS = [origin for origin in ENVIRONMENT.trusted_origins.split(",") if origin]

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.simple_history",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "allauth",
    "tenants.apps.AccountsConfig",
    "allauth.mfa",
    "simple_history",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "tenants",
    "policies",
    "memory",
    "retention",
]

MIDDLEWARE = [
    "config.requests.RequestIdentity",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # From here on for pages under /admin/ only.
    "config.requests.Language",
    "config.requests.PagePolicy",
    "config.requests.StaffTransaction",
    "config.requests.Sessions",
    "config.requests.Common",
    "config.requests.Csrf",
    "config.requests.SignedIn",
    "config.requests.Accounts",
    "config.requests.StaffScope",
    "config.requests.Messages",
    "config.requests.Frames",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
AUTH_USER_MODEL = "tenants.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            # Every template of ours has words: none loads these by itself.
            "builtins": ["django.templatetags.i18n", "tenants.templatetags.words"],
        },
    }
]

DATABASES = {"default": ENVIRONMENT.database()}
# Who tells of an ending outside the database: `memory` knows no retention.
ENDINGS_LOG = "retention.endings_log"
# Called after a commit that left work: `memory.outbox` knows no broker.
DOORBELL = "config.celery.ring"
# Who does the work of each topic, those that audit last: `memory.outbox` knows none of them.
OUTBOX_WORKERS = {
    "episode.extract": "memory.extracting.work",
    "derived.build": "memory.derived.build",
    "ending.owed": "retention.endings_log.work",
    "erasure.run": "retention.erasing.work",
    "notice.send": "retention.notices.work",
    "access.export": "retention.access.work",
    "context.build": "memory.context.build",
    "compaction.asked": "retention.compaction.work",
    "procedure.activate": "memory.promotion.activate_due",
    "desk.commit": "retention.desk.pending.work",
}
OUTBOX_HANDLERS = {
    "ledger.check": "memory.indexing.check_and_index",
    "search.names": "memory.indexing.index_names",
    "consent.withdrawn": "memory.lifetimes.end_unconsented",
    "term.ended": "memory.lifetimes.run_out",
}
# Who knows where the client programs of PostgreSQL are.
POSTGRES_PROGRAM = "config.environment.postgres_program"
# What doctor asks of apps that `tenants` knows nothing of.
DOCTOR_CHECKS = ["retention.endings_log.checks", "retention.rotation.checks", "tenants.single_sign_on.checks"]
#: After how long beat rotates tenants' keys; None: it only goes on with rotations that were cut off.
#: Hosts of recipients that may be asked although they are private or without https.
NOTICE_HOSTS = frozenset(filter(None, (each.strip().lower() for each in ENVIRONMENT.notice_hosts.split(","))))
ROTATE_KEYS_EVERY = timedelta(days=ENVIRONMENT.rotate_keys_days) or None
SEARCH_LANGUAGE = ENVIRONMENT.search_language
#: How often a day (of UTC) one person may have shown what is masked for them.
REVEALS_A_DAY = ENVIRONMENT.reveals_a_day
# Which model reads episodes where the tenant's policy lets it; None: none does.
MODEL_EXTRACTOR = ENVIRONMENT.extractor()
#: Who tells the pages of attributes what is stored of one: `policies` knows of no memory.
FACTS_BY_VERSION = "memory.sight.facts_by_version"
#: Who says which holds cover a record (retention knows, and stands above memory).
HOLDING = "retention.admin.holds.holding"
#: The spaCy model by which detection looks for names too; a process does not start with one that is not there.
NAMES_MODEL = ENVIRONMENT.names()
# Which codes of second factors were used, and how many were tried: shared by the processes of a host, and by nothing else.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": str(ENVIRONMENT.home / "cache"),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
LOCALE_PATHS = [ROOT / "locale"]
# Which language a person reads: a choice about pages and nothing else, kept in their browser.
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_SECURE = ENVIRONMENT.secure_cookies
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
TIME_ZONE = "UTC"
# In whose calendar a month is one, where a data subject is to be answered within it.
CALENDAR_ZONE = ENVIRONMENT.zone()
USE_TZ = True
USE_I18N = True

STATIC_URL = "/static/"
# Files are served from where the packages keep them: nothing to collect, at install or at start.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = ENVIRONMENT.secure_cookies
CSRF_COOKIE_SECURE = ENVIRONMENT.secure_cookies
SESSION_COOKIE_AGE = 8 * 3600
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
# Signing in by name and password, and where a person has one, a second factor: no sign-up, no e-mail, no other site.
ACCOUNT_ADAPTER = "tenants.signing.Accounts"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_REAUTHENTICATION_METHODS = ["password", "mfa"]
ACCOUNT_REAUTHENTICATION_TIMEOUT = 600
#: By which identity providers people may sign in, as MUNIMENT_SSO_FILE describes them; None: by none.
SINGLE_SIGN_ON = ENVIRONMENT.single_sign_on()
# By person, not by address: behind a proxy everybody has the same one.
ACCOUNT_RATE_LIMITS = {"login_failed": "10/5m/key", "reauthenticate": "10/m/user"}
MFA_ADAPTER = "tenants.signing.SecondFactors"
MFA_ALLOW_UNVERIFIED_EMAIL = True
# Passwords stay the first step: a key that signs in by itself would be the only one.
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_TOTP_TOLERANCE = 1
CSRF_FAILURE_VIEW = "config.problems.csrf_refused"
# Of staff pages. No script stands in a page: files of ours alone. The theme reads expressions from attributes (Alpine), which
# needs `unsafe-eval`; what was said by others stands in elements that it is told to leave alone. It writes its colours
# into a style element, and sets style attributes.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, UNSAFE_EVAL],
        "script-src-attr": [NONE],
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
    }
}
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024
FILE_UPLOAD_HANDLERS: list[str] = []

LOGGING_CONFIG = None
configuration(ENVIRONMENT.log_level)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["tenants.api.rendering.Json"],
    "DEFAULT_PARSER_CLASSES": ["tenants.api.rendering.JsonBody"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "config.problems.handle",
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "tenants.api.rendering.JsonOnly",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Muniment",
    "DESCRIPTION": "Governed agent memory: what may be kept, what is true now, what was true then, and what we believed.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "SECURITY": [{"ApiKey": []}],
    "APPEND_COMPONENTS": COMPONENTS,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "policies.api.schema.add_components",
        "memory.api.schema.add_components",
        "retention.api.hold_schema.add_components",
        "retention.api.ending_schema.add_components",
        "retention.api.request_schema.add_components",
        "retention.api.keeping_schema.add_components",
        "retention.api.redaction_schema.add_components",
        "retention.api.erasure_schema.add_components",
        "retention.api.restriction_schema.add_components",
        "tenants.api.schema.say_of_every_operation",
    ],
}

SIMPLE_HISTORY_REVERT_DISABLED = True
UNFOLD = {
    "SITE_TITLE": "Muniment",
    "SITE_HEADER": "Muniment",
    "SITE_ICON": "/static/muniment/icon.svg",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "/static/muniment/icon.svg"}],
    "SHOW_HISTORY": False,
    "COLORS": {
        "primary": {
            "50": "#f0f2fe",
            "100": "#e2e6fd",
            "200": "#c9d0fb",
            "300": "#a8b2f7",
            "400": "#8b9bff",
            "500": "#5f70e8",
            "600": "#3b4fd8",
            "700": "#3142b8",
            "800": "#2a3894",
            "900": "#232a6b",
            "950": "#181d47",
        }
    },
    "ACCOUNT": {"navigation": "config.navigation.own_account"},
    "SHOW_LANGUAGES": True,
    "LANGUAGES": {"action": "/admin/language/"},
    "DASHBOARD_CALLBACK": "retention.admin.first_page",
    "STYLES": ["/static/memory/admin.css", "/static/policies/admin.css"],
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": "config.navigation.sections"},
}
TEST_RUNNER = "django.test.runner.DiscoverRunner"
