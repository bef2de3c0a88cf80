#!/bin/bash
# Keycloak reads secrets from its environment only.
set -euo pipefail
KC_DB_PASSWORD=$(</run/secrets/login-database-password)
KC_BOOTSTRAP_ADMIN_PASSWORD=$(</run/secrets/login-admin-password)
export KC_DB_PASSWORD KC_BOOTSTRAP_ADMIN_PASSWORD
exec /opt/keycloak/bin/kc.sh start --optimized --import-realm
