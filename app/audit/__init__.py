"""Events that the service and the commands write to the audit trail."""
