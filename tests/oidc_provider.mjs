// A provider of OpenID Connect whose clients get access tokens as JSON Web Tokens, for one audience.
// Arguments: a port, and a file with the private keys as a JSON Web Key Set.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const [port, keys] = process.argv.slice(2);
const groups = ['readers', 'judges', 'curators', 'admins', 'auditors', 'strangers'];
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: JSON.parse(readFileSync(keys, 'utf8')),
  clients: groups.map((name) => ({
    client_id: name,
    client_secret: `the secret of ${name}`,
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
  })),
  extraTokenClaims: (_, token) => ({ groups: [token.clientId] }),
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, audience) => ({
        scope: '', audience, accessTokenFormat: 'jwt', accessTokenTTL: 3600,
      }),
    },
  },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
