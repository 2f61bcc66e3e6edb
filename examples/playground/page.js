// Sends the setup, and draws each event of the run as it arrives.

const ALGORITHMS = {
  fixed_window: ['Fixed window', 'counts from one edge of a window to the next'],
  sliding_window: ['Sliding window', 'adds the previous window, by its overlap'],
  sliding_log: ['Sliding log', 'keeps the time of each unit, exact in any window'],
  token_bucket: ['Token bucket', 'saves up a burst, then an even rate'],
  gcra: ['GCRA', 'the token bucket by another name'],
  leaky_bucket: ['Leaky bucket', 'even spacing, denies what comes too early'],
  leaky_queue: ['Leaky bucket, queue', 'even spacing, requests wait for their turn'],
  concurrency: ['Concurrency', 'requests at once, however long each takes'],
}
const PRESETS = {
  'Bursts': { pattern: 'bursts', rate: 10, limit: 10, window: 2000, burst: 5, clients: 12, obeying: 6, work: 50, cost: 1 },
  'Window’s edge': { pattern: 'edge', limit: 10, window: 2000, burst: 10, clients: 16, obeying: 0, work: 0, cost: 1 },
  'Nobody waits': { pattern: 'steady', rate: 20, limit: 10, window: 2000, clients: 12, obeying: 0, cost: 1 },
  'Everybody waits': { pattern: 'steady', rate: 20, limit: 10, window: 2000, clients: 12, obeying: 12, cost: 1 },
  'Slow work': { pattern: 'ramp', rate: 10, limit: 4, window: 1000, burst: 4, clients: 16, obeying: 0, work: 800, cost: 1 },
}
const COLUMNS = ['algorithm', 'allowed', 'denied', 'failed', 'held back', 'not sent', 'server allowed', 'server denied', 'by fallback', 'most at a time',
  'mean wait', 'obeying: sent', 'obeying: allowed', 'waited: sent', 'waited: allowed', 'ignoring: sent', 'ignoring: allowed']
const BINS = 60
const SILENCE = 3000
const $ = (id) => document.getElementById(id)
const form = $('setup')
const calm = matchMedia('(prefers-reduced-motion: reduce)')
const narrow = matchMedia('(max-width: 800px)')
let lanes = []
let run = null

// --- The form ---

function element(name, text, attributes = {}) {
  const made = Object.assign(document.createElement(name), attributes)
  made.append(...[text].flat())
  return made
}

for (const [name, [title]] of Object.entries(ALGORITHMS)) {
  const box = element('input', [], { type: 'checkbox', name: 'lanes', value: name, checked: true })
  $('algorithms').append(element('label', [box, ' ' + title]))
}
for (const [name, values] of Object.entries(PRESETS)) {
  const button = element('button', name, { type: 'button' })
  button.onclick = () => {
    fill(Object.entries(values))
    if (run) run.abort()
    start()
  }
  $('presets').append(button)
}

function fill(entries) {
  for (const [name, value] of entries) {
    const field = form.elements.namedItem(name)
    if (field instanceof HTMLElement) field.value = value
  }
}

/** Returns what the server takes, or throws the error that the person sees. */
function setup() {
  const values = { lanes: [] }
  for (const [name, value] of new FormData(form)) {
    if (name === 'lanes') values.lanes.push(value)
    else if (name === 'pattern') values.pattern = value
    else if (value === '') throw new Error(`${name} is not a number`)
    else values[name] = Number(value)
  }
  return values
}

/** Shows an error, and marks the fields that it names. */
function fail(message) {
  if ($('error').textContent !== message) $('error').textContent = message
  for (const field of form.querySelectorAll('input[type=number]')) {
    const named = new RegExp(`\\b${field.name}\\b`).test(message)
    if (named) field.setAttribute('aria-invalid', 'true')
    else field.removeAttribute('aria-invalid')
  }
}

async function post(path, values, signal) {
  const body = JSON.stringify(values)
  const response = await fetch(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body, signal })
  if (!response.ok) throw new Error((await response.json()).error)
  return response
}

let typing
form.addEventListener('input', () => {
  clearTimeout(typing)
  typing = setTimeout(preview, 300)
})

/** Shows the code of what is chosen. A run under way keeps its cards. */
async function preview() {
  if (run) return
  try {
    const values = setup()
    const texts = await (await post('/texts', values)).json()
    if (run) return
    fail('')
    const old = lanes
    show(texts, values)
    if (old.some((lane) => lane.responses.length)) $('status').textContent = 'The setup has changed: run it.'
  } catch (error) {
    if (!run) fail(explain(error))
  }
}

function explain(error) {
  return error instanceof TypeError ? 'The server is gone. Start it again: cargo run --example playground' : error.message
}

// --- A run ---

form.addEventListener('submit', (event) => {
  event.preventDefault()
  if (run) run.abort()
  else start()
})

async function start() {
  clearTimeout(typing)
  const mine = run = new AbortController()
  $('run').textContent = 'Stop'
  $('status').textContent = 'Waiting for the server.'
  if (narrow.matches) $('status').scrollIntoView()
  let ended = 'The run was stopped.'
  try {
    const values = setup()
    history.replaceState(null, '', '?' + new URLSearchParams(new FormData(form)))
    const response = await post('/runs', values, mine.signal)
    fail('')
    const name = await follow(response, values, mine)
    if (run !== mine) return
    const server = await (await fetch('/runs/' + name, { signal: mine.signal })).json()
    lanes.forEach((lane, index) => lane.server = server[index])
    const agree = lanes.every((lane) => lane.server[0] === lane.count(200) && lane.server[1] === lane.count(429))
    ended = agree ? 'Done: the server counted the same.' : 'Done: the server counted other numbers.'
  } catch (error) {
    if (!mine.signal.aborted) {
      ended = 'The run has failed.'
      if (run === mine) fail(explain(error))
    }
  }
  if (run !== mine) return
  run = null
  $('run').textContent = 'Run'
  $('status').textContent = ended
  draw()
}

/** Reads the lines of a run until its end; returns its name. */
async function follow(response, values, mine) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  let name = null
  let silence
  const drawing = setInterval(() => draw(), calm.matches ? 1000 : 100)
  let running = ''
  const say = (text) => {
    if ($('status').textContent !== text) $('status').textContent = text
  }
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (run !== mine) throw new Error('another run has begun')
      if (done) throw new TypeError('no end')
      clearTimeout(silence)
      silence = setTimeout(() => say(`No news from the server for ${SILENCE / 1000} s.`), SILENCE)
      text += value
      const lines = text.split('\n')
      text = lines.pop()
      for (const event of lines.map((line) => JSON.parse(line))) {
        if (event.is === 'end') return name
        if (event.is === 'start') {
          name = event.run
          show(event.lanes, { ...values, planned: event.planned }, event.now)
          running = `Running: ${event.planned} requests to each algorithm, in ${values.seconds} s.`
        } else {
          lanes[event.lane].take(event)
        }
      }
      say(running)
    }
  } finally {
    clearInterval(drawing)
    clearTimeout(silence)
  }
}

class Lane {
  constructor({ lane, capacity, rust, toml }, values, now) {
    Object.assign(this, { name: lane, capacity, values, now, responses: [], left: [], held: 0, server: null, began: performance.now() })
    const [title, hint] = ALGORITHMS[lane]
    this.title = title
    this.card = $('lane').content.firstElementChild.cloneNode(true)
    this.find('h3').textContent = title
    this.find('h3').id = 'title-' + lane
    this.card.setAttribute('aria-labelledby', 'title-' + lane)
    this.find('.hint').textContent = hint
    this.find('.rust').textContent = rust
    this.find('.toml').textContent = toml
    for (const part of ['head', 'rust', 'toml']) this.find('.' + part).setAttribute('aria-label', `${title}: ${part}`)
    for (const button of this.card.querySelectorAll('.copy')) {
      button.setAttribute('aria-label', `${button.textContent}: ${title}`)
      button.onclick = async () => {
        await navigator.clipboard.writeText(button.previousElementSibling.textContent)
        $('status').textContent = 'Copied.'
      }
    }
  }

  find(selector) {
    return this.card.querySelector(selector)
  }

  take(event) {
    if (event.is === 'held') this.held += 1
    else if (event.is === 'left') this.left.push(event)
    else this.responses.push(event)
  }

  count(status, some = () => true) {
    return this.responses.filter((response) => response.status === status && some(response)).length
  }

  get failed() {
    return this.responses.length - this.count(200) - this.count(429)
  }

  /** What clients had no time for, as they were waiting. */
  get unsent() {
    return this.server ? this.values.planned - this.responses.length - this.held : 0
  }

  /** The most units that were allowed in any window, or the most requests at once. */
  get most() {
    const { window, cost, work } = this.values
    const length = this.name === 'concurrency' ? Math.max(work, 1) : window
    const times = this.responses.filter((response) => response.status === 200).map((response) => response.at).sort((a, b) => a - b)
    let [first, most] = [0, 0]
    times.forEach((time, index) => {
      while (times[first] <= time - length) first += 1
      most = Math.max(most, index - first + 1)
    })
    return most * cost
  }

  get meanWait() {
    const waits = this.responses.filter((response) => response.status === 200).map((response) => response.at - response.sent)
    return Math.round(waits.reduce((sum, wait) => sum + wait, 0) / (waits.length || 1))
  }

  group(some) {
    return [this.responses.filter(some).length, this.count(200, some)]
  }

  bins(span) {
    const bins = Array.from({ length: BINS }, () => [0, 0])
    for (const { at, status } of this.responses) {
      const bin = Math.min(BINS - 1, Math.floor(at / span * BINS))
      bins[bin][status === 200 ? 0 : 1] += 1
    }
    return bins
  }

  draw(bins, highest, span) {
    const { window, cost, limit } = this.values
    const x = (at) => (Math.min(1, at / span) * 300).toFixed(1)
    const bar = (index, low, high) => high === low ? '' :
      `M${index * 5 + .5} ${(68 - 66 * low / highest).toFixed(1)}V${(68 - 66 * high / highest).toFixed(1)}h4V${(68 - 66 * low / highest).toFixed(1)}z`
    const path = (name, d) => this.find('path.' + name).setAttribute('d', d)
    path('allowed', bins.map(([allowed], index) => bar(index, 0, allowed)).join(''))
    path('denied', bins.map(([allowed, denied], index) => bar(index, allowed, allowed + denied)).join(''))
    const y = (units) => (99 - 25 * Math.min(1, units / this.capacity)).toFixed(1)
    const level = this.left.map(({ at, units }) => `L${x(at)} ${y(units)}`).join('')
    path('left', level && `M0 99${level}L${x(this.left.at(-1).at)} 99z`)
    if (this.name.endsWith('_window') && this.now && span / window < 100) {
      let edges = ''
      for (let at = window - this.now % window; at < span; at += window) edges += `M${x(at)} 0V100`
      path('edge', edges)
    }
    const now = performance.now() - this.began
    path('now', run && this.now && !calm.matches && now < span ? `M${x(now)} 0V100` : '')

    this.find('.end').textContent = span / 1000 + ' s'
    const [allowed, denied] = [this.count(200), this.count(429)]
    this.find('.counts .allowed').textContent = allowed
    this.find('.counts .denied').textContent = denied
    const last = this.responses.at(-1)
    if (last) this.find('.head').textContent = last.head
    const [obeying, ignoring, waited] = this.groups()
    const of = ([sent, served]) => sent ? `${served} of ${sent}` : '–'
    const { obeying: all, clients } = this.values
    const rows = {
      [this.name === 'concurrency' ? 'Most at once' : `Most in ${window / 1000} s`]: `${this.most} (limit ${limit})`,
      ...all > 0 && { 'Obeying clients': of(obeying), '… after waiting': of(waited), '… held back': this.held },
      ...all < clients && { 'Ignoring clients': of(ignoring) },
      'Server counted': this.server ? this.server.slice(0, 2).join(' and ') : '–',
    }
    if (this.name === 'leaky_queue') rows['Mean wait'] = `${this.meanWait} ms`
    if (this.server?.[2]) rows['Redis was late for'] = this.server[2]
    if (this.unsent) rows['Not sent in time'] = this.unsent
    if (this.failed) rows['No response'] = this.failed
    this.find('dl').replaceChildren(...Object.entries(rows).flatMap(([name, value]) => [element('dt', name), element('dd', String(value))]))
    this.find('dl').classList.toggle('over', this.most > Math.max(limit, cost))
    this.find('svg').setAttribute('aria-label', `${this.title}: ${allowed} allowed and ${denied} denied in ${span / 1000} s; the table has all numbers`)
  }

  groups() {
    return [(response) => response.obeys, (response) => !response.obeys, (response) => response.waited].map((some) => this.group(some))
  }

  row() {
    const [obeying, ignoring, waited] = this.groups()
    return [this.title, this.count(200), this.count(429), this.failed, this.held, this.unsent, ...(this.server ?? ['', '', '']), this.most,
      `${this.meanWait} ms`, ...obeying, ...waited, ...ignoring]
  }
}

function show(texts, values, now) {
  const open = new Set([...document.querySelectorAll('article details[open]')].map((details) => details.parentElement.id + details.innerText.split('\n')[0]))
  lanes = texts.map((text) => new Lane(text, values, now))
  lanes.forEach((lane) => {
    lane.card.id = lane.name
    for (const details of lane.card.querySelectorAll('details')) details.open = open.has(lane.name + details.firstElementChild.textContent)
  })
  $('lanes').replaceChildren(...lanes.map((lane) => lane.card))
  draw()
}

function draw() {
  // The last requests of a queue start after the run's time.
  const ends = lanes.map((lane) => Math.ceil(Math.max(lane.values.seconds, (lane.responses.at(-1)?.at ?? 0) / 1000)) * 1000)
  const span = Math.max(1000, ...ends)
  const bins = lanes.map((lane) => lane.bins(span))
  const highest = Math.max(4, ...bins.flat().map(([allowed, denied]) => allowed + denied))
  lanes.forEach((lane, index) => lane.draw(bins[index], highest, span))
  $('rows').replaceChildren(...lanes.map((lane) => {
    const [title, ...cells] = lane.row()
    return element('tr', [element('th', title, { scope: 'row' }), ...cells.map((cell) => element('td', String(cell)))])
  }))
}

$('columns').append(...COLUMNS.map((column) => element('th', column, { scope: 'col' })))
const linked = new URLSearchParams(location.search)
fill(linked)
if (linked.has('lanes')) {
  for (const box of form.querySelectorAll('[name=lanes]')) box.checked = linked.getAll('lanes').includes(box.value)
}
preview()
