// Prints the ports of one server for each set of limits, and serves.
import express from 'express';
import { rateLimit } from 'express-rate-limit';

const byKey = (request) => request.get('x-api-key') ?? 'none';
const all = () => 'all';
const apps = [
  [{ windowMs: 2000, limit: 3, standardHeaders: 'draft-8' }],
  [{ windowMs: 3600000, limit: 2, skipFailedRequests: true }],
  [{ windowMs: 3600000, limit: 2, skipSuccessfulRequests: true }],
  [{ windowMs: 3600000, limit: 1 }],
  [{ windowMs: 3600000, limit: 3, keyGenerator: all }, { windowMs: 3600000, limit: 1, keyGenerator: byKey }],
];
const listening = apps.map((limits, place) => new Promise((resolve) => {
  const app = express();
  if (place === 3) app.set('trust proxy', 1);
  app.use(limits.map((limit) => rateLimit(limit)));
  app.get('/', (request, response) => response.send('hello'));
  app.get('/fails', (request, response) => response.status(500).send('sorry'));
  const server = app.listen(0, '127.0.0.1', () => resolve(server.address().port));
}));
console.log((await Promise.all(listening)).join(' '));
