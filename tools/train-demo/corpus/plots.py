# SPDX-License-Identifier: Apache-2.0
"""The plots of the stories: for each a topic, a one-line plan and its paragraphs, as templates.

Variables: {h} hero with {he} {him} {his} {He} {His}, {f} friend with {fe} {fim} {fis} {Fe}, {a} grown-up of the family
with {ae} {Ae}; {thing} {color} {food} {place} {atplace} {spot} {animal} {flower} {n}. {hk} and {fk} say what they are.
"""

PLOTS = {}


def plot(topic, plan, *paragraphs, human=False):
    PLOTS[topic] = {"plan": plan, "paragraphs": paragraphs, "human": human}


plot(
    "a lost {thing}",
    "{h} loses a {color} {thing}, looks for it with {f} and finds it {spot}.",
    "{h} had a {color} {thing}. It was {his} favorite {thing}, and {he} took it everywhere. [One morning|One day|One"
    " afternoon], [{h} woke up and the {thing} was gone|{h} could not find the {thing}|the {color} {thing} was not in"
    ' its place]. [{He} felt very sad.|{He} began to cry.|"Oh no! Where is my {thing}?" {he} said.]',
    '{h} went to {his} friend {f}, [a {fk}|who was a {fk}]. "{f}, can you help me find my {thing}?" {he} asked. "Of'
    ' course," said {f}. ["Let us look together."|"Two friends see more than one."|"Do not worry, we will find it."]'
    " They looked {atplace}. [They looked up and down.|They looked high and low.|They looked here and there.] [But the"
    " {thing} was not there.|They did not see it.]",
    'Then {f} [had an idea|saw something {color}|stopped and pointed]. "Look {spot}!" {fe} said. {h} looked, and there'
    ' was the {color} {thing}! [{h} was so happy that {he} jumped up and down.|{h} laughed and hugged {f}.|"You found'
    ' it!" cried {h}.] ["Thank you, {f}. You are a good friend."|"Thank you for helping me," said {h}.] From that day'
    " on, {h} always [put the {thing} back in its place|kept the {thing} in a safe place|took good care of the"
    " {thing}].",
)

plot(
    "a new friend",
    "{h} feels alone, meets {f} {atplace}, and they become friends.",
    "{h} [had no one to play with|was new in town and did not know anyone|often played alone]. [It made {him} feel"
    ' sad.|{He} wished for a friend.|"I wish I had a friend," {he} said.]',
    "One {weather} day, {h} went to {place}. There {he} saw a {fk} [sitting all alone|looking at the water|playing with"
    ' a {thing}]. {h} was shy, but {he} took a deep breath and said, "Hello, my name is {h}. [What is your name?|Who'
    ' are you?]" The {fk} [smiled|looked up|waved]. "I am {f}," {fe} said. "[Do you want to play with me?|Will you play'
    ' with me?]"',
    "{h} and {f} [played all day long|ran and laughed|played with the {thing} until the sun went down]. [They shared a"
    " {food}.|They told each other funny stories.|They made up a new game.] When it was time to go home, {f} said,"
    ' "Will you come back tomorrow?" "Yes!" said {h}. [From then on, they met {atplace} every day.|After that day, {h}'
    " was never lonely again.|Now {h} had a friend, and {he} was very happy.]",
)

plot(
    "sharing a {food}",
    "{h} has a {food}, sees that {f} is hungry, and shares it.",
    "One {weather} [morning|day|afternoon], {h} had a {food} for lunch. It [smelled so good|looked very tasty|was big"
    " and sweet]. {h} sat down {atplace} [to eat it|and opened {his} bag|under a tree]. {He} was very hungry.",
    'Just then, {f} came by. {f} was a {fk}, and {fe} looked sad. "What is wrong, {f}?" asked {h}. "[I have nothing to'
    ' eat|I lost my lunch|I am so hungry]," said {f}. {h} looked at the {food}. [{He} wanted to eat it all.|It was only'
    ' one {food}.|{He} thought for a moment.] Then {he} smiled and cut the {food} in two. "Here, half of it is for'
    ' you," {he} said.',
    '{f} was so happy. "Thank you, {h}! You are very kind," {fe} said. They ate the {food} together, and it tasted'
    " [better than ever|very good|even better]. [The next day, {f} brought a big {food2} and shared it with {h}.|{h}"
    " learned that sharing makes everything taste better.|{h} was still a little hungry, but {his} heart was full.]",
)

plot(
    "a dark night",
    "{h} is afraid of the dark, and {his} {a} shows that the dark is not scary.",
    "{h} was afraid of the dark. Every night, when the lights went out, {he} [hid under the blanket|closed {his} eyes"
    ' tight|called for {his} {a}]. ["There is a monster in my room," {he} said.|{He} thought that {he} heard a strange'
    " sound.]",
    'One night, {his} {a} came and sat on the bed. "What do you hear?" {ae} asked. {h} listened. "I hear a [tap, tap,'
    ' tap|hoo, hoo|soft scratch]," {he} said. {Ae} took {his} hand, and together they [went to the window|looked out of'
    " the window|walked to the window]. Outside there was only a [little owl on a branch|branch of the old tree|small"
    ' cat on the roof]. "See?" said {his} {a}. "It is not a monster at all."',
    "{h} [began to laugh|smiled|felt much better]. {He} looked up and saw [a hundred stars|the big round moon|the moon"
    ' and the stars]. "The dark is [beautiful|full of lights|not so bad]," {he} said. That night, {h} slept well. From'
    " then on, {he} was not afraid of the dark anymore.",
)

plot(
    "a kitten in a tree",
    "A kitten is stuck in a tree, and {h} and {f} find a way to help it down.",
    'One day, {h} heard a small sound {atplace}. "Meow! Meow!" {He} looked up and saw a little {ccolor} kitten. The'
    ' kitten was high up in a tree and could not get down. ["Oh, you poor kitten," said {h}.|"Do not be scared, little'
    ' one," said {h}.] {h} tried to climb the tree, but it was too tall.',
    'So {h} ran to get {his} friend {f}, [a {fk}|who was a {fk}]. "{f}, there is a kitten in the tree!" {he} said. {f}'
    ' thought and thought. "I know," said {f}. "[We can use a ladder|We need a long ladder|Let us bring a basket and a'
    ' rope]." They worked together. [It was hard, but they did not give up.|They were very careful.|{f} held it tight'
    " while {h} went up.]",
    'At last, the kitten was safe. It [rubbed its head on {h}|purred and purred|licked {h} on the nose]. "We did it!"'
    " said {f}. [The kitten followed them all the way home.|{h} gave the kitten some milk.|They took the kitten back to"
    " its mother.] {h} and {f} were proud, because they had helped someone small.",
)

plot(
    "a birthday gift",
    "{h} makes a gift for {his} {a} because {he} has no money.",
    "Tomorrow was the birthday of {h}'s {a}. {h} wanted to give {a_him} a gift, but {he} had no money. [{He} sat down"
    ' and thought hard.|"What can I do?" {he} asked.|{He} looked in {his} pockets, but they were empty.]',
    'Then {h} had an idea. "I can make something!" {he} said. {He} went to {place} and found [some pretty flowers|three'
    " smooth stones|colorful leaves|small white shells]. {His} friend {f} brought [some paper and glue|a {color}"
    " ribbon|a little box]. They worked all afternoon. [It was not easy, but it was fun.|Soon their hands were sticky,"
    " and they laughed a lot.]",
    'The next morning, {h} gave the gift to {his} {a}. "I made it for you," {he} said. {Ae} opened it and [smiled a big'
    ' smile|had tears of joy|clapped {a_his} hands]. "This is the best gift of all, because you made it with love,"'
    " {ae} said. {Ae} gave {h} a big hug, and they all ate cake together.",
    human=True,
)

plot(
    "rain at a picnic",
    "Rain stops the picnic of {h} and {f}, but they find shelter and see a rainbow.",
    "{h} and {his} friend {f} wanted to have a picnic {atplace}. {f} was a {fk}. They packed a {food}, a {food2} and"
    " some juice. [The sun was shining.|It was a warm day.|They sang as they walked.]",
    'But as soon as they sat down, the sky turned gray. Drip, drop! It started to rain. "Oh no, our picnic!" cried {f}.'
    ' "Quick, come with me," said {h}. They ran [to a big tree|to a small cave|under an old bridge] and waited there.'
    " They were a little wet, but [they were dry soon|the {food} was still dry|they did not mind]. They ate the {food}"
    " and [told stories|sang songs|played a guessing game] while the rain fell.",
    'After a while, the rain stopped. The sun came out, and there was a big rainbow in the sky. "Look! [Red, yellow,'
    ' green and blue|How beautiful|I can see all the colors]!" said {f}. {h} smiled. "[Without the rain, there would be'
    ' no rainbow|This is the best picnic ever|Rain is not so bad]," {he} said.',
)

plot(
    "a little seed",
    "{h} plants a seed, waits with patience, and a {flower} grows.",
    'One {season} day, {h} found a tiny seed {atplace}. "What are you?" {he} asked. {h} [took the seed home|put the'
    ' seed in {his} pocket] and showed it to {his} {a}. "Plant it and wait," said {his} {a}. "[Good things take'
    ' time|Then you will see|It needs water, sun and love]."',
    "So {h} dug a small hole and put the seed in the ground. {He} gave it water every day. The first day, nothing"
    ' happened. The second day, nothing happened. [{h} was sad.|{h} wanted to give up.|"Maybe it is a bad seed," said'
    ' {his} friend {f}.] But {he} kept giving it water. Then one morning, {he} saw a little green leaf. "It is'
    ' growing!" {he} shouted.',
    "The plant grew and grew. By the end of summer, it was a beautiful {flower}. [Everyone came to see it.|{f} came to"
    " look at it, too.|Bees and birds came to visit.] {h} was very proud. {He} learned that [you need to wait for good"
    " things|a small seed can become something big|it is good to be patient].",
)

plot(
    "a broken {thing}",
    "{h} breaks the {thing} of {f}, tells the truth, and helps to mend it.",
    "{h} was playing {atplace} with a {color} {thing}. The {thing} belonged to {his} friend {f}, a {fk}. {h} [ran too"
    " fast|was not careful|threw it high into the air], and then, crack! The {thing} fell down and broke. {h} was"
    ' scared. "[What will {f} say|What have I done|{f} will be so angry]?" {he} thought.',
    '{h} wanted to hide the {thing} {spot}. But that did not feel right. So {he} went to {f} and told the truth. "I'
    ' broke your {thing}. I am very sorry," said {h}. {f} was sad for a moment. Then {fe} said, "[Thank you for telling'
    ' me|It was an accident|I am glad that you told me the truth]. [Maybe we can fix it.|Let us fix it together.]"',
    "They took some [glue and tape|string and glue|nails and a hammer] and worked on it all afternoon. In the end, the"
    ' {thing} was as good as new. ["It looks even better now," said {f}.|"We are a good team," said {f}.] {h} was happy'
    " that {he} had told the truth.",
)

plot(
    "a race",
    "{h} runs a race against {f}, stops to help, and learns that winning is not everything.",
    "There was a big race {atplace}. All the animals and children came to see it. {h} wanted to win. {f} wanted to win,"
    ' too. {f} was a {fk} who could run very fast. "[I will be the first|You cannot beat me|I am the fastest]," said'
    " {f}.",
    '"One, two, three, go!" They ran and ran. {f} was in front. But then {f} [fell over a stone|slipped in the mud|hurt'
    ' {fis} foot] and could not get up. {h} could run past {fim} and win the race. But {h} stopped. "Are you all'
    ' right?" {he} asked. {He} helped {f} to stand up, and they walked to the end together.',
    "[They were the last, but everyone clapped.|Someone else won the race, but everyone cheered for them.|They did not"
    ' win, but they both got a {color} ribbon.] "Thank you, {h}," said {f}. "You did not win the race, but you [won a'
    ' friend|are the real winner]." {h} smiled. It was the best race of {his} life.',
)

plot(
    "a magic {thing}",
    "{h} finds a magic {thing} that grants one wish, and uses the wish for {f}.",
    "One {weather} day, {h} found a {color} {thing} {spot}. It was [shining like a star|very old|warm and bright]. When"
    ' {h} picked it up, it began to speak! "I am a magic {thing}," it said. "I can give you one wish."',
    "{h} thought about it. {He} could wish for [a house full of toys|a mountain of cake|a castle]. {He} could wish for"
    " {n} bags of gold. Then {he} thought of {f}. {f} was a {fk} and {his} best friend, and {fe} was [sick in bed|far"
    ' away from home|very sad that day]. "I wish that {f} is [happy and well|happy again]," said {h}.',
    'The {thing} glowed, and there was a soft sound. A moment later, {f} came running. "[I feel so good|Something'
    ' wonderful happened|I am so happy]!" {fe} said. {h} hugged {fim}. The magic was gone, and the {thing} was just a'
    " {thing} again. But {h} did not mind. [{He} had made the best wish of all.|A happy friend is better than gold.]",
)

plot(
    "getting lost",
    "{h} gets lost, keeps calm, and {f} shows {him} the way home.",
    "One day, {h} followed a [{bcolor} butterfly|little bird|{bcolor} leaf in the wind] into the forest. It went left,"
    ' and it went right. When {h} looked back, {he} could not see {his} house anymore. "I am lost," {he} said. [It was'
    " getting dark.|The trees were very tall.|The wind was cold.] {h} wanted to cry.",
    'But {he} remembered what {his} {a} had told {him}: "If you are lost, stay calm and ask for help." So {h} sat down'
    ' and called, "Hello! Is anybody there?" "Who is calling?" said a soft voice. It was {f}, a {fk}. "I am {h}, and I'
    ' cannot find my way home," {he} said. "I know every path here," said {f}. "Follow me."',
    "They walked [past the big rock and over the bridge|along the river|through the tall trees], and soon {h} saw the"
    ' light of {his} house. {His} {a} [was waiting at the door|ran to meet them|opened the door]. "[I was so'
    ' worried|There you are|Welcome home]!" {ae} said. {h} thanked {f} and gave {fim} a {food}. After that, {f} often'
    " came to visit.",
)

plot(
    "baking with {a}",
    "{h} bakes a {cake} with {his} {a}; it goes wrong at first and turns out well.",
    'One {weather} [morning|afternoon], {h} wanted to bake. "Can we make a {cake}?" {he} asked {his} {a}. "[Of'
    ' course|What a good idea|Yes, let us do it]," said {his} {a}. "We need flour, eggs, milk and sugar."',
    "{h} put the flour in a bowl. Poof! There was flour everywhere. {His} nose was white. {His} {a} laughed. Then {h}"
    " [broke the eggs|counted the eggs] into the bowl, one, two, three. {He} mixed and mixed until {his} arms were"
    " tired. They put the {cake} in the oven and [waited|sang a song|cleaned the kitchen].",
    "[Soon the whole house smelled sweet.|After a while, it smelled so good.] When the {cake} was ready, it was [round"
    ' and golden|a little crooked|big and warm]. {h} invited {his} friend {f}, and they all had a piece. "[This is the'
    ' best {cake} in the world|Yum, it is so good|Did you really make it]," said {f}. {h} was very proud.',
    human=True,
)

plot(
    "a strange noise",
    "{h} hears a noise at night and finds out that it is {f}, who needs help.",
    "It was late at night, and {h} was in bed. Suddenly there was a noise. [Bump! Bump!|Tap, tap, tap.|Scratch,"
    ' scratch.] "What was that?" said {h}. {He} sat up and listened. There it was again! It came from the'
    " [kitchen|garden|roof|hall].",
    "{h} took a [lamp|small light|candle] and walked slowly, step by step. {His} heart went boom, boom. {He} opened the"
    " door, and there was a {fk}! It was {f}. {f} was [cold and wet|hungry|looking for something to eat|afraid of the"
    ' storm]. "Please do not be afraid," said {f}. "[I only want to get warm|I am just hungry|I did not want to wake'
    ' you]."',
    '{h} laughed. "I am not afraid anymore," {he} said. {He} gave {f} a {food} and a warm blanket. [They sat by the'
    ' fire and talked.|Soon {f} fell asleep next to the fire.] In the morning, {f} said, "Thank you. Now I have a'
    ' friend." And {h} had a friend, too.',
)

plot(
    "a treasure map",
    "{h} and {f} follow a map and find a treasure that is not gold.",
    '{h} found an old map {spot}. There was a big red X on it. "It is a treasure map!" {he} said. {He} ran to {his}'
    ' friend {f}, a {fk}. "[Do you want to find a treasure with me|Let us find the treasure|Look what I found]!" said'
    " {h}.",
    "They followed the map. First they walked to {place}. Then they took {n} steps to the left. [They crossed a small"
    ' river.|They climbed a steep hill.|They went through a dark cave.] "Here is the X," said {f}. They dug and dug. At'
    " last, they found a box.",
    "{h} opened the box. There was no gold inside. There was [an old book full of stories|a letter and two {color}"
    ' hats|a {color} {thing} and a letter]. The letter said: "[The real treasure is the friend who came with you|A good'
    ' friend is the best treasure|Share this with someone you love]." {h} and {f} looked at each other and laughed. [It'
    " was true.|They agreed.] They went home, hand in hand.",
)

plot(
    "learning to {skill}",
    "{h} wants to learn to {skill}, fails, and tries again until it works.",
    '{h} wanted to learn to {skill}. All {his} friends could do it. "[It looks so easy|I want to do it, too|I can do'
    ' that]," said {h}. But the first time {he} tried, {he} [failed|did not get very far|had to stop]. The second time,'
    ' it was [not much better|even worse]. [{h} was sad.|"I will never learn it," {he} said.|{h} wanted to give up.]',
    'Then {f} came along. {f} was a {fk}. "I could not {skill} at first," said {f}. "I had to practice every day.'
    ' [Come, I will help you.|Let us practice together.]" So they practiced {atplace}. [They practiced on Monday, and'
    " they practiced on Tuesday.|Day after day, {h} got a little better.|It took a long time.]",
    'One {weather} day, it worked! "I did it! I can {skill}!" shouted {h}. {f} [clapped|cheered|danced with joy]. {h}'
    " learned that [you must not give up|you can do anything if you keep trying|practice makes you better]. And the"
    " next day, {he} helped someone else to {skill}.",
)

plot(
    "a snow day",
    "It snows, and {h} and {f} build a snowman that looks like someone they know.",
    '{h} woke up and looked out of the window. Everything was white. "Snow!" {he} cried. {He} put on {his} coat, {his}'
    " hat and {his} {bcolor} scarf and ran outside. {His} friend {f}, a {fk}, was already there.",
    '"Let us build a snowman," said {f}. They rolled one big ball, one middle ball and one small ball. [They used two'
    ' stones for the eyes and a carrot for the nose.|They gave it a carrot for a nose.] "[He looks cold|Something is'
    ' missing]," said {h}. So {he} gave the snowman {his} {bcolor} scarf. "Now he looks just like your {a}!" said {f},'
    " and they both laughed.",
    "When they were cold, they went inside and drank hot cocoa. In the night, {h} looked at the snowman. [It seemed to"
    ' smile.|The moon was shining on it.] After a few days, the sun came and the snowman melted. ["Good bye, snowman.'
    ' See you next winter," said {h}.|{h} was sad, but {his} {a} said, "He will come back next winter."]',
)

plot(
    "a shy {animal}",
    "Everyone is afraid of the big {animal}, but {h} is kind, and it helps them all.",
    'Near the village lived a very big {animal}. Everyone was afraid of it. "Stay away from the {animal}," people said.'
    ' "[It is mean|It is dangerous|It will eat you]." But {h} was not so sure. {He} had seen the {animal} [cry|smile at'
    " a flower|help a little bird].",
    'One day, {h} took a {food} and walked to the {animal}. "Hello," {he} said. "Are you hungry?" The {animal} looked'
    ' at {him} with big eyes. "[Nobody ever talks to me|You are not afraid of me|You are the first to say hello]," it'
    ' said. "[I only want a friend.|I am so lonely.]" They shared the {food}, and they [talked until the'
    " evening|laughed a lot].",
    "Soon after that, [a big storm came, and a tree fell on the road|the bridge broke, and nobody could cross the"
    " river|a small child fell into the river]. The {animal} came and helped. It was so strong! The people were"
    ' surprised. "Thank you," they said. "We are sorry that we were afraid of you." From that day on, the {animal} had'
    " many friends, and {h} was its best friend.",
)

plot(
    "the music of {h}",
    "{h} plays the {instrument} badly at first, and in the end everybody dances.",
    "{h} got a {instrument} from {his} {a}. {He} was so happy! {He} played it in the morning, and {he} played it at"
    ' night. But it was very loud. [The birds flew away.|The cat hid under the sofa.|"Please stop!" said the'
    " neighbors.] {h} was sad and put the {instrument} away.",
    '{f}, a {fk}, heard about it. "May I listen?" asked {f}. {h} played a little song. "[I like it|It is a happy'
    ' song|You play well]," said {f}. "You only need to play more softly. I will sing with you." So {h} played, and {f}'
    " sang. They practiced for {n} days.",
    "Then there was a party {atplace}. {h} and {f} made music for everyone. This time nobody ran away. [The children"
    ' danced.|Everybody clapped.|Even the neighbors danced.] "[More, more|Play it again]," they shouted. {h} looked at'
    " {f} and smiled. [Music is better with a friend.|It was the happiest day of {his} life.]",
)

plot(
    "two friends and one {thing}",
    "{h} and {f} fight over a {thing} and then find a way to share it.",
    '{h} and {f} were best friends. {f} was a {fk}. One day, they found a {color} {thing} {atplace}. "I saw it first,"'
    ' said {h}. "No, it is mine," said {f}. They pulled and pulled. [They were both angry.|They began to shout.|Neither'
    " of them let go.]",
    'Then {h}\'s {a} came by. "What is going on?" {ae} asked. "We both want the {thing}," said {f}. "[You can take'
    ' turns|You could share it|A {thing} is more fun with a friend]," said the {aword}. {h} thought about it. {He}'
    ' looked at {f} and gave {fim} the {thing}. "You can have it first," {he} said. "I am sorry." "I am sorry, too,"'
    " said {f}.",
    "So they took turns with the {thing}. [First {f} had it, and then {h} had it.|They played with it all afternoon.]"
    " It was much more fun than being angry. At the end of the day, they [gave the {thing} a name|put the {thing} in a"
    " box for both of them|laughed about the fight]. A {thing} is nice, but a friend is nicer.",
)

plot(
    "a star",
    "{h} wants to touch a star, and {f} shows {him} the stars in the water.",
    'Every night, {h} looked up at the stars. "I want to touch one," {he} said. {He} climbed on a chair, but the stars'
    " were too high. {He} climbed a tree, but the stars were still too high. {He} even climbed the hill, but [it did"
    " not help|the stars were still far away].",
    '{f} saw {him} there. {f} was a {fk}. "Why are you so sad, {h}?" asked {f}. "I cannot reach the stars," said {h}.'
    ' {f} smiled. "Come with me," {fe} said. They went down to the [lake|pond]. The water was dark and still, and it'
    " was full of stars!",
    "{h} put {his} hand into the water. [The stars danced around {his} fingers.|Now {he} could touch a hundred stars.]"
    ' "It is [wonderful|beautiful|like magic]," {he} said. {h} and {f} sat by the water for a long time. [Some things'
    " that are far away are closer than you think.|And that is how {h} touched a star.]",
)

plot(
    "helping at {place}",
    "{h} helps an old man {atplace} and gets a {thing} as a thank-you.",
    "One {weather} day, {h} went to {place}. There was an old man with a heavy [bag|box|basket]. He was walking very"
    ' slowly. [Many people walked past him.|Nobody helped him.] {h} stopped. "Can I help you?" {he} asked.',
    '"That is very kind of you," said the old man. {h} carried one side, and the old man carried the other. It was a'
    " long way. They talked about [the weather|the birds|old times|the sea]. {h} was tired, but {he} did not stop until"
    " they reached the little house of the old man.",
    '"You have a good heart," said the old man. He gave {h} a {color} {thing}. "It was mine when I was small. Now it is'
    ' yours." {h} thanked him and ran home to tell {his} {a}. {Ae} was very proud of {him}. [After that, {h} visited'
    " the old man every week.|The {thing} always reminded {h} to be kind.]",
)

plot(
    "a boat trip",
    "{h} and {f} sail on the lake, the wind stops, and they get home by working together.",
    "{h} and {his} friend {f} had a small {bcolor} boat. {f} was a {fk}. One {weather} morning, they sailed out on the"
    ' lake. [The water was blue and clear.|They saw fish in the water.|A duck swam beside them.] "[I am the'
    ' captain|This is fun|Let us sail to the island]!" said {h}.',
    'But then the wind stopped. The boat did not move at all. "What do we do now?" asked {f}. {h} looked around. There'
    ' were two pieces of wood in the boat. "We can row!" said {h}. {h} rowed on the left, and {f} rowed on the right.'
    ' At first the boat [went round and round|turned in a circle]. Then they counted together: "One, two, one, two!"',
    "Now the boat went straight. [They rowed and rowed until they saw the shore.|It took a long time, but they did not"
    ' stop.] When they got home, {h}\'s {a} gave them warm soup. "How did you do it?" {ae} asked. "Together," said {h}'
    " and {f} at the same time, and they laughed.",
)

plot(
    "a {color} {thing} at the market",
    "{h} saves coins for a {thing} at the market and spends them on something kind.",
    "{h} saw a {color} {thing} at the market. It was so pretty! It cost {n} coins. {h} had only two coins. So {he}"
    " worked hard. {He} [watered the flowers|fed the chickens|washed the dishes|swept the floor] for {his} {a}, and"
    " every day {he} got one more coin.",
    'At last, {h} had {n} coins. {He} ran to the market. On the way, {he} saw {f}, a {fk}. {f} was crying. "I lost my'
    ' money, and I cannot buy bread," said {f}. {h} looked at {his} coins. {He} thought of the {thing}. Then {he} [gave'
    ' the coins to {f}|put the coins into the hand of {f}]. "Take them," said {h}.',
    "{h} went home without the {thing}, but {he} [was not sad|felt warm inside]. The next morning, there was a box at"
    ' the door. In it was the {color} {thing}, and a note: "For {h}, who is so kind." {h} [never found out who sent'
    " it|knew that {f} had told the man at the market|laughed with joy].",
)

plot(
    "a robot",
    "A small robot named {f} does not know what fun is, and {h} shows it.",
    'One day, {h} found a small robot {spot}. It was made of {metal}. "Hello, I am {f}," said the robot. "I can count,'
    ' and I can clean. What can you do?" "I can play," said {h}. "What is play?" asked the robot. [It did not know how'
    " to play!|{h} was surprised.]",
    "So {h} took {f} to {place}. They [ran and jumped|threw a {color} {thing}|played hide and seek]. At first, the"
    ' robot only counted. "One jump. Two jumps. Three jumps." But then something happened. {f} made a funny sound:'
    ' "Beep beep hee hee!" "You are laughing!" said {h}. "Is this fun?" asked {f}. "Yes," said {h}. "This is fun!"',
    "From then on, the robot cleaned the room in the morning and played with {h} in the afternoon. [At night, they"
    ' counted the stars together.|And every night, it said, "Today was fun."|{h} helped the robot to clean, because'
    " friends help each other.]",
    human=True,
)

plot(
    "a wise old owl",
    "{h} asks the owl for advice on how to be {virtue}, and finds the answer in {himself}.",
    '{h} wanted to be {virtue}. "But how?" {he} asked. {His} friend {f}, a {fk}, did not know. "Ask the old owl," said'
    ' {f}. "The owl knows everything." So {h} walked [for a long time|through the forest|over the hill] to the tree of'
    " the owl.",
    '"Dear owl, how can I be {virtue}?" asked {h}. The owl closed its eyes. "[Go home and come back tomorrow|First you'
    ' must help someone|Bring me a {color} leaf]," it said. On the way, {h} met a little {animal}. It was [stuck in the'
    " mud|afraid to cross the river|lost and cold]. {h} [did not think twice|stopped at once] and helped the {animal}.",
    'When {h} came back, the owl smiled. "I saw what you did," said the owl. "You helped the {animal} when nobody was'
    ' watching. You are already {virtue}." {h} was surprised. [Then {he} smiled, too.|"Thank you, wise owl," {he}'
    " said.] {He} walked home with a light heart and told {f} all about it.",
)
