r"""The table of secrets: by name, by shape, and by the program that takes them.

`secrets.py` decides by this table; a new spelling needs a row here and a line in
tests/unit/test_secret_spellings.py. Its sources are the publishers' documentation and the public rules of
two scanners: "gitleaks" is config/gitleaks.toml of github.com/gitleaks/gitleaks, "detect-secrets" the list
of its plugin `KeywordDetector` (github.com/Yelp/detect-secrets). Rules that need the entropy of a whole file
are left out, because a command has too few words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

# By name. The name of an option, a variable or a key is converted to lower case; "-" and the word boundaries
# of camelCase become "_", every other separator becomes ".".

_QUALIFIERS = (
    r"api|app|application|access|secret|private|priv|auth|account|client|enc(?:rypt(?:ion)?)?|decrypt(?:ion)?|fernet|aes|hmac"
    r"|master|sign(?:ing)?|storage|subscription|service|licen[cs]e|db|database|deploy|ssh"
    # services whose "key" is a secret
    r"|hf|hub|hugging_?face|wandb|open_?ai|anthropic|azure|aws|gcp|google|gemini|cohere|mistral|groq|replicate"
    r"|together|deepseek|openrouter|comet|neptune|clearml|kaggle|ngc|nvidia|langsmith|langchain|pinecone"
    r"|tavily|slack|discord|stripe|roboflow|datadog|sentry"
)
_OF_TEXT = (
    r"[bes]o[stm]|pad(?:ding)?|unk|sep|cls|class|mask|image|img|video|audio|vision|speaker|stop|start|begin|end|special"
    r"|new_?line|fim|prefix|middle|suffix|user|assistant|system|think(?:ing)?|reasoning|tool|draft|dummy"
    r"|placeholder|initializer|trigger|instance|blank|bad|word|char|sub|de|register|distill(?:ation)?"
    r"|max|min|num|n|total|per|first|last|next|prev|each"
)
"""--pad-token is a part of a tokenizer, --placeholder_token one of diffusers, --max-token a number."""
_ABOUT = (
    r"files?|paths?|dirs?|folder|names?|types?|sizes?|len(?:gth)?|bits|counts?|format|policy|url|uri|endpoint|ttl"
    r"|timeout|expir\w*|prefix|fields?|columns?|env|var|arn|command|cmd|helper|store|backend|provider|manager"
    r"|budget|limit|dims?|dropout|index"
)
"""HF_TOKEN_PATH holds the location of a token, not a token."""
_OF_TOKENS = (
    r"bearer|bot|csrf|git(?:hub|lab)?|id|jupyter|notebook|personal|refresh|security|session|telegram"
    r"|upload|vault"
)
"""With one of these, a "token" is a secret whatever its value is."""
_PASS_OF = (
    r"db|database|user|smtp|imap|mysql|my|sql|pg|root|admin|ssh|s?ftp|https?|e?mail|redis|mongo|login|key|proxy|vault"
    r"|ansible|become|sudo|wifi|auth|cert|store|basic|web|rabbitmq|neo4j|jenkins"
)

_PLAIN_WORD = re.compile(r"|true|false|yes|no|none|null|on|off|auto|<[^<>]*>|\[[A-Za-z_]+\]", re.IGNORECASE)
"""A switch, or a special token of a tokenizer ("<pad>", "[MASK]"): never a secret."""
_VARIABLE = r"\$(?:[A-Z][A-Z0-9_]{2,}|\{[A-Za-z_]\w*(?::?[-?])?\})"
_REFERENCE = re.compile(rf"{_VARIABLE}|\$[0-9]?|(?:\$\(|`)(?:cat\s+|<\s*)[\w./~$-]+[)`]")
"""Expansions of a shell that yield a variable or a file: "$HF_TOKEN", "${1:?}", "$(cat FILE)". A "$" alone is
the beginning of a command substitution."""
_LABEL = re.compile(r"[^\W\d_]{1,10}|[^\w\s]{1,3}|\d{1,3}")
"""The shape of a tokenizer's tokens, which a service's tokens do not have: "EOT", "cls", "|"."""
_NO_PASSWORD = re.compile(r"\d{1,2}|(?:file|env|fd):.*|stdin", re.DOTALL)
"""A number of passes; the source from which openssl(1) reads its password."""
_PATH = re.compile(r"\.{1,2}|~|(?:~|\.{1,2}|\$\{?\w+\}?)?/.*|\$\{?PWD\}?", re.DOTALL)
_RANDOM = re.compile(
    r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])(?:[0-9A-Fa-f-]{32,}|[0-9a-z]{32,}"
    r"|(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])[\w+/~%-]{20,}={0,2})"
)
"""A generated identifier: hexadecimal, base 36, base 64, or percent-encoded."""
_PAIR = re.compile(r"[^:/\s]+:[^/\s].*", re.DOTALL)


def _password(value: str) -> bool:
    return not _NO_PASSWORD.fullmatch(value)


def _no_folder(value: str) -> bool:
    return _password(value) and not _PATH.fullmatch(value)


def _no_label(value: str) -> bool:
    return not _LABEL.fullmatch(value)


def _random(value: str) -> bool:
    return bool(_RANDOM.fullmatch(value))


def _random_or_pair(value: str) -> bool:
    return bool(_RANDOM.fullmatch(value) or _PAIR.fullmatch(value))


_NAMES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    # detect-secrets; gitleaks' generic-api-key
    (
        rf"(?:.*[._])?(?:[a-z0-9]*(?:passw(?:or)?ds?|pass_?phrases?|secrets?|apikeys?)|passcode|credentials?|creds)"
        rf"\d*(?!(?:[._].*)?[._](?:{_ABOUT})\Z)(?:[._].*)?",
        bool,
    ),
    (rf"(?:.*\.)?(?:(?:.*_)?(?:{_QUALIFIERS}|{_OF_TOKENS})_?)?token", bool),
    (rf"(?!(?:.*[._])?(?:{_OF_TEXT})_?token)(?:.*[._])?[a-z0-9]*token", _no_label),
    (r"(?:.*[._])?(?:api|access|auth|hf|hub|refresh|session|bearer|deploy|bot)_?tokens", bool),
    (rf"(?:.*[._])?(?:{_QUALIFIERS})[._]?keys?", bool),
    # fs.azure.account.key.ACCOUNT.dfs.core.windows.net of Hadoop's ABFS
    (r"(?:.*\.)?account\.key\..+", bool),
    (r"(?:.*[._])?(?:git(?:hub|lab)?|gh|gl|bitbucket|azure|ado)_?pat", bool),
    (rf"(?:.*\.)?(?:(?:.*_)?(?:{_PASS_OF})_?)?(?:passw?|pw|pswd?)", _password),
    # --pwd of Apptainer is a directory, and so is PWD.
    (r"(?:.*[._])?pwd", _no_folder),
    # RFC 6750, 7235 and 6265; --gradio-auth NAME:PASSWORD; REDISCLI_AUTH of redis-cli(1)
    (r"(?:.*[._])?(?:bearer|jwt|authorization|(?:set_)?cookie)", bool),
    (r"(?:.*[._])?(?:gradio|api|basic|http|proxy|redis(?:_?cli)?)_auth", bool),
    # Names with other meanings, too: the value decides. `sig` is Azure's shared access signature; other
    # examples are X-Amz-Signature and X-Goog-Signature.
    (r"(?:.*[._])?(?:auth|user_?pass|login)", _random_or_pair),
    (r"(?:.*[._])?(?:keys?|sig(?:nature)?|pat|sas|sid|session(?:_?id)?|code|webhook)", _random),
)
_OF_VARIABLES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    (rf"(?!(?:.*_)?(?:{_OF_TEXT})_token)(?:.*_)?(?:key|token)(?:_(?!(?:.*_)?(?:{_ABOUT})\Z).*)?", bool),
    (rf"(?:.*_)?(?:pass|pw)(?:_(?!(?:.*_)?(?:{_ABOUT})\Z).*)?", _password),
    (r".*_pat", bool),
)
"""Further rules for variables, with names in capital letters: AWS_ACCESS_KEY_ID, SSH_KEY, HF_TOKEN_PROD."""
_BEFORE_NAME = re.compile(r"-D(?=\w+\.)|-+")
"""Dashes, and -D of Java's properties."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TAIL = re.compile(
    r"(?:\d|_\d|_(?:value|str(?:ing)?|text|plain(?:text)?|b64|base64|hex|raw|prod|dev|staging))+\Z"
)
"""Suffixes that do not change the meaning of a name: api_key_2, token_value."""
_LONGEST_NAME = 200


def is_reference(value: str) -> bool:
    """Whether a value only refers to a secret."""
    return bool(_REFERENCE.fullmatch(value))


def is_named_secret(name: str, value: str) -> bool:
    """Whether the value is a secret, judged by the name first."""
    if _PLAIN_WORD.fullmatch(value) or is_reference(value):
        return False
    bare = _BEFORE_NAME.sub("", name, 1)[-_LONGEST_NAME:]
    rules = _NAMES + _OF_VARIABLES if name.isupper() else _NAMES
    # `PassWord` is a password, too, in whatever case it is written.
    for spelled in {_HUMP.sub("_", bare).lower(), bare.lower()}:
        plain = _TAIL.sub("", re.sub(r"[^\w]+", ".", spelled.replace("-", "_")))
        if any(re.fullmatch(rule, plain) and judge(value) for rule, judge in rules):
            return True
    return False


# By shape: the prefixes of publishers' tokens, and the rest.

_TOKENS = (
    # hf.co/docs/hub/security-tokens; gitleaks: huggingface-*
    ("Hugging Face", r"hf_|api_org_", r"[A-Za-z0-9]{20,}"),
    # gitleaks: openai-api-key, anthropic-*; DeepSeek and OpenRouter begin the same
    ("OpenAI or Anthropic", r"sk-", r"(?:(?:proj|svcacct|admin|ant|or|lf)-[\w-]{12,}|[A-Za-z0-9]{17,})"),
    # gitleaks: stripe-access-token; ElevenLabs
    ("Stripe", r"[sprk]k_", r"(?:(?:live|test|prod)_[A-Za-z0-9]{10,}|[A-Za-z0-9]{20,})"),
    # docs.wandb.ai: API keys since 2025
    ("Weights & Biases", r"wandb_v\d_", r"[\w-]{12,}"),
    ("Groq", r"gsk_", r"[A-Za-z0-9]{16,}"),
    ("xAI", r"xai-", r"[A-Za-z0-9]{16,}"),
    # gitleaks: perplexity-api-key
    ("Perplexity", r"pplx-", r"[A-Za-z0-9]{16,}"),
    ("NVIDIA", r"nvapi-", r"[\w-]{14,}"),
    ("Replicate", r"r8_", r"[A-Za-z0-9]{17,}"),
    ("Together", r"tgp_v\d_", r"[\w-]{14,}"),
    # docs.pinecone.io, docs.runpod.io, docs.tavily.com, docs.fireworks.ai: "API keys"
    ("Pinecone", r"pcsk_", r"\w{20,}"),
    ("RunPod", r"rpa_", r"[A-Za-z0-9]{20,}"),
    ("Tavily", r"tvly-", r"[\w-]{16,}"),
    ("Fireworks", r"fw_", r"[A-Za-z0-9]{20,}"),
    # gitleaks: atlassian-api-token
    ("Atlassian", r"ATATT3", r"[\w=-]{20,}"),
    # gitleaks: npm-access-token, pypi-upload-token, rubygems-api-token
    ("npm", r"npm_", r"[A-Za-z0-9]{16,}"),
    ("PyPI", r"pypi-", r"AgE[\w-]{12,}"),
    ("RubyGems", r"rubygems_", r"[a-f0-9]{20,}"),
    ("Docker", r"dckr_[po]at_", r"[\w-]{11,}"),
    # github.blog/2021-04-05-behind-githubs-new-authentication-token-formats; gitleaks: github-*
    ("GitHub", r"gh[oprsu]_|github_pat_", r"[A-Za-z0-9_]{16,}"),
    # docs.gitlab.com/security/tokens ("token prefixes"); gitleaks: gitlab-*
    ("GitLab", r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-", r"[\w.-]{14,}"),
    # api.slack.com/authentication/token-types; gitleaks: slack-*
    ("Slack", r"xox[a-z][-.]|xapp-", r"[\w.-]{15,}"),
    # docs.aws.amazon.com IAM "unique identifiers"; gitleaks: aws-*
    ("AWS", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)", r"[A-Z0-9]{16}"),
    ("AWS Bedrock", r"ABSK|bedrock-api-key-", r"[A-Za-z0-9+/]{20,}={0,2}"),
    ("Alibaba Cloud", r"LTAI", r"[A-Za-z0-9]{20}"),
    # cloud.google.com; gitleaks: gcp-api-key; detect-secrets: GCP
    ("Google", r"AIza", r"[\w-]{16,}"),
    ("Google OAuth", r"ya29\.|GOCSPX-", r"[\w.-]{15,}"),
    # gitleaks: databricks-api-token, digitalocean-*, grafana-*, vault-*, sendgrid-api-token, and as named
    ("Databricks", r"dapi", r"[a-f0-9]{32}(?:-\d)?"),
    ("DigitalOcean", r"do[opr]_v1_", r"[a-f0-9]{20,}"),
    ("Grafana", r"gl(?:sa|c)_", r"[\w+/=]{20,}"),
    ("Vault", r"hv[bsr]\.", r"[\w-]{20,}"),
    ("SendGrid", r"SG\.", r"[\w.-]{20,}"),
    ("Notion", r"ntn_", r"[A-Za-z0-9]{20,}"),
    ("Linear", r"lin_api_", r"[A-Za-z0-9]{20,}"),
    ("Pulumi", r"pul-", r"[a-f0-9]{40}"),
    ("Postman", r"PMAK-", r"[a-f0-9-]{20,}"),
    ("Shopify", r"shp(?:at|ca|pa|ss)_", r"[A-Fa-f0-9]{20,}"),
    ("Square", r"sq0(?:atp|csp)-", r"[\w-]{20,}"),
    ("Sentry", r"sntry[su]_", r"[\w+/=]{20,}"),
    ("age", r"AGE-SECRET-KEY-1", r"[A-Z0-9]{20,}"),
    # RFC 7519: base 64 of '{"'; gitleaks: jwt
    ("JSON Web", r"eyJ", r"(?:[\w-]{6,}(?:\.[\w-]*){2,4}|[\w-]{17,})={0,2}"),
)
BEGINNINGS = rf"(?:{'|'.join(begins for _, begins, _ in _TOKENS)})"
"""The prefixes of tokens, as a pattern."""

_BEFORE = r"(?:(?<![^\s=:,'\"`(\[{<>|;&@?])|(?<=\A-[A-Za-z]))"
"""The context before a token: no part of a word, or the letter of an option."""
_AFTER = r"(?![^\s'\"`,;&|<>)\]}\\])"
ADDRESS = "an address with a password"

TOKEN = rf"{_BEFORE}({'|'.join(f'(?:{begins})(?:{rest})' for _, begins, rest in _TOKENS)}){_AFTER}"
"""A token of one of these anywhere in a word; the token is the pattern's only group."""


def token_name(token: str) -> str:
    """Return a description of a token that `TOKEN` has matched."""
    return next(f"a token of {owner}" for owner, begins, _ in _TOKENS if re.match(begins, token))


SHAPES = (
    # https://user:password@host (RFC 3986, 3.2.1) and https://token@host
    (
        ADDRESS,
        r"(?i)(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}://(?:[^/\s:@]*:)?((?<=:)[^/?#\s]+|(?<=/)[^/\s:@]{20,})@",
    ),
    # user:password@host:port, as curl takes it for a proxy
    (ADDRESS, r"(?<![\w/.+:@-])[\w.+-]{1,64}:([^/\s@:]+)@[\w.-]+:\d{2,5}(?!\w)"),
    # learn.microsoft.com: "Azure AD client secret"; gitleaks: azure-ad-client-secret
    ("a client secret of Azure", rf"{_BEFORE}([\w~.]{{3}}\dQ~[\w~.-]{{31,34}}){_AFTER}"),
    # core.telegram.org/bots/api; gitleaks: telegram-bot-api-token
    ("a token of Telegram", r"(?<!\d)\d{5,16}:(A[\w-]{34})(?![\w-])"),
    # discord.com/developers, "webhook"; gitleaks: slack-webhook-url, microsoft-teams-webhook
    (
        "the address of a webhook",
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks/\d+"
        r"|webhook\.office\.com/webhookb2)/([^\s'\"]+)",
    ),
    # RFC 7468; gitleaks: private-key
    ("a private key", r"(?s)-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----(.*)"),
    # the same in base 64, as in a kubeconfig
    ("a private key", r"(LS0tLS1CRUdJTi[\w+/=]+)"),
    # netrc(5)
    ("a password in a netrc", r"\blogin\s+\S{1,200}\s+password\s+([^\s'\"]+)"),
    # RFC 7235
    ("Authorization", rf"\b(?i:Bearer|Basic)\s+(?!{_VARIABLE}(?!\S*[^\s'\"]))([^\s'\"]{{8,}})"),
)
"""Other secrets anywhere in a word: a description, and a pattern whose only group is the secret. The patterns
are compiled on first use, as not every command has its words read."""


class Program(NamedTuple):
    """A secret that a program takes without a revealing name, or by a letter that means something else to
    other programs, according to its own documentation.

    name     the description of the secret
    called   a pattern for the program's name
    verbs    the words that follow the program's name
    option   a pattern for the option, with a glued value as the group "value"
    next     whether the next word is the value where no value is glued: "" never, "-" even with a dash
    before   the text that ends the public part of the value: ":" for NAME:SECRET
    valued   other options whose value is the next word; needed where `operand` is set
    operand  the meaning of the first word that is not an option: "" an ordinary argument, "secret", or the
             "command" with its own options
    """

    name: str
    called: str
    option: str = "(?!)"
    verbs: tuple[str, ...] = ()
    next: str = "-"
    before: str = ""
    valued: str = "(?!)"
    operand: str = ""


PROGRAMS = (
    Program(
        "wandb login",
        "wandb",
        verbs=("login",),
        valued="--(?:host|base-url)",
        operand="secret",
    ),
    Program(
        "login -p",
        "docker|podman|nerdctl|buildah|skopeo|oras|oc|az",
        "-p=?(?P<value>(?s:.*))",
        verbs=("login",),
    ),
    Program("login -p", "helm", "-p=?(?P<value>(?s:.*))", verbs=("registry", "login")),
    Program(
        "mysql -p",
        "(?:mysql|mariadb)(?:-?(?:dump|admin|import|show|check|sh))?",
        "-p(?P<value>(?s:.+))",
        next="",
    ),
    Program("mongo -p", "mongo(?:sh|dump|restore|import|export)?", "-p(?P<value>(?s:.*))", next="word"),
    Program("redis-cli -a", "redis-cli", r"(?:-a|--pass(?:=|\Z))(?P<value>(?s:.*))"),
    Program(
        "sshpass -p",
        "sshpass",
        "-[ehvV]*p(?P<value>(?s:.*))",
        valued="-[ehvV]*[fdP]",
        operand="command",
    ),
    Program(
        "curl -u",
        "curl",
        r"(?:-[#:0-46aBfgGiIjJklLMnNOpqRsSvVZ]*[uU]|--(?:proxy-)?user(?:=|\Z))(?P<value>(?s:.*))",
        before=":",
    ),
    Program(
        "curl -b",
        "curl",
        r"(?:-[#:0-46aBfgGiIjJklLMnNOpqRsSvVZ]*b|--cookie(?:=|\Z))(?P<value>(?s:.*))",
        before="=",
    ),
    Program(
        "curl -E",
        "curl",
        r"(?:-[#:0-46aBfgGiIjJklLMnNOpqRsSvVZ]*E|--(?:proxy-)?cert(?:=|\Z))(?P<value>(?s:.*))",
        before=":",
    ),
    Program("http -a", "https?|xhs?", r"-[bcdfFhIjmSv]*a(?P<value>(?s:.*))", before=":"),
    # `aws configure set NAME VALUE` and similar commands
    Program(
        "config set",
        "aws|git|dvc|pip3?|poetry|npm|rclone",
        r"[\w.:/-]*(?:secret|token|passw(?:or)?d)[a-z_]*(?P<value>)",
        next="word",
    ),
    Program("vault login", "vault", verbs=("login",), operand="secret"),
    Program("login -k", "swanlab|prefect", "-k(?P<value>(?s:.*))", verbs=("login",)),
    Program("mosquitto -P", "mosquitto_(?:pub|sub|rr)", "-P(?P<value>(?s:.*))"),
    Program("etcdctl --user", "etcdctl", r"--user(?:=|\Z)(?P<value>(?s:.*))", before=":"),
    Program("openssl -pass", "openssl", "-pass(?:in|out)?(?P<value>)", before="pass:"),
    Program("openssl -k", "openssl", "-[kK](?P<value>)"),
    Program("zip -P", "zip|unzip|zipcloak", "-P(?P<value>(?s:.*))"),
    Program("7z -p", "7z[azr]?", "-p(?P<value>(?s:.+))", next=""),
    Program("ssh-keygen -N", "ssh-keygen", "-[NP](?P<value>(?s:.*))"),
    Program("ldap -w", "ldap(?:search|modify|add|delete|passwd|whoami)", "-w(?P<value>(?s:.*))"),
    Program("sqlcmd -P", "sqlcmd|bcp|isql|tsql", "-P(?P<value>(?s:.*))"),
    Program("smbclient -U", "smbclient|rpcclient", r"(?:-U|--user(?:=|\Z))(?P<value>(?s:.*))", before="%"),
    Program("lftp -u", "lftp", r"(?:-u|--user(?:=|\Z))(?P<value>(?s:.*))", before=","),
    Program("kubectl create secret", "kubectl|oc", r"--from-literal(?:=|\Z)(?P<value>(?s:.*))", before="="),
)
