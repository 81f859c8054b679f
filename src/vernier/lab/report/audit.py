"""The results of audits in words (`vernier audit`, `verify`): `templates/audit.txt` and `verify.txt`."""

from vernier.lab.audit.records import AuditResult, Verification
from vernier.templates import lines_of, open_templates
from vernier.wording import plural

_TEMPLATES = open_templates(__file__, plural=plural)


def audit_lines(result: AuditResult) -> list[str]:
    return lines_of(_TEMPLATES, "audit.txt", {"audit": result})


def verify_lines(result: Verification) -> list[str]:
    return lines_of(_TEMPLATES, "verify.txt", vars(result))
